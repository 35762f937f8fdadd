package ctl

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

// table prints rows under a head, in columns.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	t.row(head...)
	return t
}

// row prints text from elsewhere with its control characters shown, so that a name cannot steer a
// terminal.
func (t table) row(cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	fmt.Fprintln(t.w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

var onOneLine = strings.NewReplacer("\n", "·", "\t", "·")

func printable(s string) string { return onOneLine.Replace(terminal.Printable(s)) }

// span is a length of time for people.
func span(ms int64) string {
	switch d := time.Duration(ms) * time.Millisecond; {
	case ms < 1000:
		return fmt.Sprintf("%d ms", ms)
	case ms >= 48*time.Hour.Milliseconds(): // a time that is long past may be more than d holds
		return fmt.Sprintf("%d d %d h", ms/(24*time.Hour).Milliseconds(), ms/time.Hour.Milliseconds()%24)
	default:
		return d.Round(time.Second).String()
	}
}

// instant is a time as the API writes it, by this machine's zone; "" for none.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(instantForm)
}

const instantForm = "2006-01-02T15:04:05.000Z07:00"

// last is how a timer's last attempt ended.
func last(t *client.Timer) string {
	if t.LastError == "" && t.State == client.Done && t.LastStatus == 0 {
		return "acked"
	}
	return ended(t.LastStatus, t.LastError)
}

// ended is how an attempt ended.
func ended(status int, text string) string {
	if text != "" || status == 0 {
		return text
	}
	return fmt.Sprint(status)
}

// waits is why a timer waits; "" when it does not.
func waits(t *client.Timer) string {
	if t.WaitsOn == "" {
		return string(t.WaitsFor)
	}
	return string(t.WaitsFor) + ": " + t.WaitsOn
}

// printRows prints the rows of a listing under a head.
func printRows[T any](out io.Writer, rows []json.RawMessage, head []string, cells func(*T) []string) error {
	t := newTable(out, head...)
	for _, raw := range rows {
		row := new(T)
		if err := readAnswer(raw, row); err != nil {
			return err
		}
		t.row(cells(row)...)
	}
	return t.w.Flush()
}

// printTimers prints the columns from the one that is given on.
func printTimers(from int) func(out io.Writer, timers []json.RawMessage) error {
	head := []string{"TOPIC", "ID", "STATE", "DUE", "VERSION", "ATTEMPTS", "LAST", "WAITS FOR"}
	return func(out io.Writer, timers []json.RawMessage) error {
		return printRows(out, timers, head[from:], func(t *client.Timer) []string {
			cells := []string{t.Topic, t.ID, string(t.State), instant(t.Due), fmt.Sprint(t.Version), fmt.Sprint(t.Attempts), last(t), waits(t)}
			return cells[from:]
		})
	}
}

func printDead(out io.Writer, timers []json.RawMessage) error {
	return printRows(out, timers, []string{"ID", "REASON", "DUE", "ATTEMPTS", "UID", "LAST"}, func(t *client.Timer) []string {
		return []string{t.ID, string(t.Reason), instant(t.Due), fmt.Sprint(t.Attempts), t.UID, last(t)}
	})
}

func printTopics(out io.Writer, topics []json.RawMessage) error {
	head := []string{"TOPIC", "PAUSED", "SCHEDULED", "READY", "LEASED", "DONE", "DEAD", "OLDEST OVERDUE", "WAITS FOR"}
	return printRows(out, topics, head, func(t *client.Topic) []string {
		c := t.Counts
		return []string{t.Name, fmt.Sprint(t.Paused), fmt.Sprint(c.Scheduled), fmt.Sprint(c.Ready), fmt.Sprint(c.Leased),
			fmt.Sprint(c.Done), fmt.Sprint(c.Dead), span(t.OldestOverdueMs), waitsFor(c.Waiting)}
	})
}

// waitsFor lists what a topic's due timers wait for, most of them first.
func waitsFor(waiting map[client.WaitCause]int64) string {
	causes := slices.SortedFunc(maps.Keys(waiting), func(a, b client.WaitCause) int {
		return cmp.Or(cmp.Compare(waiting[b], waiting[a]), cmp.Compare(a, b))
	})
	words := make([]string, len(causes))
	for i, cause := range causes {
		words[i] = fmt.Sprintf("%s %d", cause, waiting[cause])
	}
	return strings.Join(words, ", ")
}

// printDetail prints an object one member a line, in the node's order but without the times in ms
// next to the readable ones, and without those named.
func printDetail(out io.Writer, body []byte, without ...string) error {
	object := gjson.ParseBytes(body)
	if !gjson.ValidBytes(body) || !object.IsObject() {
		return fmt.Errorf("the answer is not a JSON object (is --url right?): %.200q", body)
	}
	members := object.Map()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	object.ForEach(func(name, value gjson.Result) bool {
		if readable, ms := strings.CutSuffix(name.Str, "_ms"); ms && members[readable].Exists() || slices.Contains(without, name.Str) {
			return true
		}
		text := readable(value)
		if at, err := time.Parse(time.RFC3339, text); err == nil && members[name.Str+"_ms"].Exists() {
			text = instant(at)
		}
		fmt.Fprintf(w, "%s\t%s\n", printable(name.Str), printable(text))
		return true
	})
	return w.Flush()
}

// readable is a text without its quotes, and anything else but null as it is.
func readable(value gjson.Result) string {
	if value.Type == gjson.String || value.Type == gjson.Null {
		return value.Str
	}
	return value.Raw
}

func readableValue(raw []byte) string { return readable(gjson.ParseBytes(raw)) }

// printJSON prints an answer as it came, and ends the line. Characters that a terminal could take
// for commands are spelled as escapes, which mean the same.
func printJSON(out io.Writer, body []byte) error {
	if !json.Valid(body) {
		return fmt.Errorf("the answer is not JSON (is --url right?): %.200q", body)
	}
	text := make([]byte, 0, len(body)+1)
	for _, r := range string(bytes.TrimRight(body, "\r\n")) {
		switch {
		case r == '\r': // between values
		case r >= 0x7f && r < 0xa0:
			text = fmt.Appendf(text, "\\u%04x", r)
		default:
			text = utf8.AppendRune(text, r)
		}
	}
	_, err := out.Write(append(text, '\n'))
	return err
}

// jsonList is a JSON array of values that are JSON already.
func jsonList[T ~[]byte](list []T) []byte {
	text := []byte("[")
	for i, value := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(text, value...)
	}
	return append(text, ']')
}

func printPages(out io.Writer, member string, rows []json.RawMessage, cursor string) error {
	o := &object{}
	o.raw(member, jsonList(rows))
	o.text("next_cursor", cursor)
	return printJSON(out, o.bytes())
}
