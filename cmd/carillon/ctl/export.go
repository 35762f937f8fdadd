package ctl

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
	"carillon/timer"
	"carillon/transport/api/web"
)

// The first and the last line of an exported topic. Between them are adds, one a line.
type (
	exportHead struct {
		Version int             `json:"version"`
		Topic   string          `json:"topic"`
		Paused  bool            `json:"paused,omitempty"`
		Policy  json.RawMessage `json:"policy"`
	}
	exportEnd struct {
		Timers int `json:"timers"`
	}
)

const exportVersion = 1

// hiddenValue is shown by a node instead of a header's value that looks secret.
const hiddenValue = "REDACTED"

type exportCmd struct {
	Topic string `arg:"" help:"Topic."`
}

func (e *exportCmd) Run(ctl *Command, term *terminal.Terminal) error {
	topic, err := answerOf[topicRow](ctl.do(client.Request{Method: http.MethodGet, Path: client.Path("topics", e.Topic)}))
	if err != nil {
		return err
	}
	out := bufio.NewWriter(term.Data())
	head := exportHead{Version: exportVersion, Topic: e.Topic, Paused: topic.Paused, Policy: topic.Policy}
	if err := writeLine(out, "export", head); err != nil {
		return err
	}
	policy := membersOf(topic.Policy)
	x := exporter{out: out, perKey: policy["per_key"] != nil, serial: same(policy["serial"], plain(true))}
	l := listing{path: client.Path("topics", e.Topic, "timers"), member: "timers"}
	err = ctl.allPages(l, x.timers)
	if err == nil {
		err = x.writeInstant()
	}
	if err != nil {
		return err
	}
	if err := writeLine(out, "end", exportEnd{x.count}); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the export: %w", err)
	}
	x.policySecrets = hidesPolicy(topic.Policy)
	x.report(term.Err, e.Topic)
	return nil
}

func writeLine(w io.Writer, name string, value any) error {
	_, err := fmt.Fprintf(w, "{%q:%s}\n", name, plain(value))
	return err
}

// exporter turns timers as they are shown into adds, and counts the fields that an add cannot have.
type exporter struct {
	out           io.Writer
	perKey        bool // weights are of use in the topic
	serial        bool
	instant       []arrival // is yet to be written; of a serial topic all of one due time
	count         int
	hidden        int // timers with a header whose value is not shown
	counted       int // series that end after a number of occurrences
	leased        int // an attempt is under way
	successors    int // timers that wait behind it are not shown
	collected     int // arrays of merge collect
	first         int // … with others behind them, which an import refuses: they have the same id
	policySecrets bool
}

// arrival is a timer that is written once all are known that are due at the same time. In a serial
// topic they are called in the order in which they arrived; a listing has them by their ids.
type arrival struct {
	dueMs  int64
	number uint64
	line   []byte
}

// shownTimer has the fields of a shown timer that an add repeats.
type shownTimer struct {
	ID              string          `json:"id"`
	UID             string          `json:"uid"`
	State           client.State    `json:"state"`
	DueMs           int64           `json:"due_ms"`
	Payload         json.RawMessage `json:"payload"`
	Bytes           *string         `json:"payload_base64"`
	ContentType     string          `json:"content_type"`
	Callback        json.RawMessage `json:"callback"`
	Priority        int             `json:"priority"`
	Weight          int             `json:"weight"`
	Labels          []string        `json:"labels"`
	Retry           json.RawMessage `json:"retry"`
	ExpiresAfter    string          `json:"expires_after"`
	Repeat          json.RawMessage `json:"repeat"`
	OnDone          json.RawMessage `json:"on_done"`
	OnDead          json.RawMessage `json:"on_dead"`
	Successor       bool            `json:"successor"`
	Collected       int             `json:"collected"`
	Paused          bool            `json:"paused"`
	CancelRequested bool            `json:"cancel_requested"`
}

func (e *exporter) timers(page []json.RawMessage) error {
	for _, raw := range page {
		var t shownTimer
		if err := readAnswer(raw, &t); err != nil {
			return err
		}
		if t.CancelRequested {
			continue // it ends with the attempt that is under way
		}
		e.count++
		if t.State == client.Leased {
			e.leased++
		}
		switch {
		case t.Successor && t.Collected > 0:
			e.first++
		case t.Successor:
			e.successors++
		}
		if t.Collected > 0 {
			e.collected++
		}
		if !e.perKey {
			t.Weight = 0 // an add with one would be refused
		}
		if hidesHeader(t.Callback) {
			e.hidden++
		}
		if endsByCount(t.Repeat) {
			e.counted++
		}
		if err := e.write(&t); err != nil {
			return err
		}
	}
	return nil
}

// write writes a timer, or keeps it for writeInstant.
func (e *exporter) write(t *shownTimer) error {
	_, number, _, _ := timer.ParseUID(t.UID)
	if n := len(e.instant); n > 0 && (!e.serial || e.instant[n-1].dueMs != t.DueMs) {
		if err := e.writeInstant(); err != nil {
			return err
		}
	}
	e.instant = append(e.instant, arrival{t.DueMs, number, append(t.add(), '\n')})
	return nil
}

func (e *exporter) writeInstant() error {
	slices.SortStableFunc(e.instant, func(a, b arrival) int { return cmp.Compare(a.number, b.number) })
	for _, a := range e.instant {
		if _, err := e.out.Write(a.line); err != nil {
			return fmt.Errorf("write the export: %w", err)
		}
	}
	e.instant = e.instant[:0]
	return nil
}

// add is the timer as an add with an absolute time: to repeat it changes nothing. import alone
// knows the field paused.
func (t *shownTimer) add() []byte {
	o := &object{}
	o.set("id", t.ID)
	if t.DueMs < web.LeastMs {
		o.set("at", time.UnixMilli(t.DueMs).UTC().Format(instantForm))
	} else {
		o.set("at_ms", t.DueMs)
	}
	usual := ""
	switch {
	case bytes.ContainsAny(t.Payload, "\r\n"):
		// A line must stay one: the same bytes, spelled otherwise.
		o.set("payload_base64", base64.StdEncoding.EncodeToString(t.Payload))
		usual = "application/octet-stream"
	case t.Payload != nil:
		o.raw("payload", t.Payload)
		usual = "application/json"
	case t.Bytes != nil:
		o.set("payload_base64", *t.Bytes)
		usual = "application/octet-stream"
	}
	if t.ContentType != usual {
		o.text("content_type", t.ContentType)
	}
	o.raw("callback", t.Callback)
	o.number("priority", int64(t.Priority))
	o.number("weight", int64(t.Weight))
	if len(t.Labels) > 0 {
		o.set("labels", t.Labels)
	}
	o.raw("retry", t.Retry)
	o.text("expires_after", t.ExpiresAfter)
	o.raw("repeat", t.Repeat)
	o.raw("on_done", t.OnDone)
	o.raw("on_dead", t.OnDead)
	if t.Paused {
		o.set("paused", true)
	}
	return o.bytes()
}

// hidesHeader reports that a callback has a header whose value is not shown.
func hidesHeader(callback json.RawMessage) bool {
	var c client.Callback
	readable := len(callback) > 0 && json.Unmarshal(callback, &c) == nil
	return readable && slices.Contains(slices.Collect(maps.Values(c.Headers)), hiddenValue)
}

// hidesPolicy reports that a policy has secrets, of which only fingerprints are shown, or such
// headers.
func hidesPolicy(policy json.RawMessage) bool {
	var p struct {
		Callback json.RawMessage `json:"callback"`
		Secrets  []string        `json:"secrets"`
		Keys     []string        `json:"signing_keys"`
	}
	return json.Unmarshal(policy, &p) == nil && (len(p.Secrets)+len(p.Keys) > 0 || hidesHeader(p.Callback))
}

func endsByCount(repeat json.RawMessage) bool {
	var r client.Repeat
	return len(repeat) > 0 && json.Unmarshal(repeat, &r) == nil && r.Count > 0
}

func (e *exporter) report(w io.Writer, topic string) {
	fmt.Fprintf(w, "carillon: exported %s of %s\n", terminal.Many(int64(e.count), "timer", "timers"), topic)
	var lacks []string
	note := func(is bool, format string, args ...any) {
		if is {
			lacks = append(lacks, fmt.Sprintf(format, args...))
		}
	}
	note(e.policySecrets, "the topic's secrets or credentials, which no node shows: import asks for --without-secrets unless the topic is there")
	note(e.hidden > 0, "credentials in the headers of %d timers, which no node shows: import asks for --without-secrets", e.hidden)
	note(e.counted > 0, "how often %d series with a count have come so far: import asks for --restart-counts", e.counted)
	note(e.leased > 0, "how the attempts end that were under way for %d timers: they would be made again", e.leased)
	note(e.successors > 0, "what waits behind a running attempt of %d timers", e.successors)
	note(e.collected > 0, "what makes the arrays of %d timers that collect grow: they come as plain payloads", e.collected)
	note(e.first > 0, "another id for what waits behind the arrays of %d ids: import refuses it", e.first)
	if len(lacks) > 0 {
		fmt.Fprintf(w, "carillon: the file is without %s\n", strings.Join(lacks, "; "))
	}
}
