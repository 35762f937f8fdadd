// Package migrate reads the jobs of other systems and writes them as adds, in the form that
// carillon ctl import takes. It changes no job at the source; at a beanstalkd it puts one of its
// own and deletes it, to learn the newest id. A job has the same id in each run, and an absolute
// time, so that its import can be repeated.
package migrate

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"carillon/cmd/carillon/terminal"
	"carillon/transport/api/web"
)

// Command has one command for each source.
type Command struct {
	Redis      redisCmd      `cmd:"" help:"Read the members of a sorted set of Redis."`
	Asynq      asynqCmd      `cmd:"" help:"Read the tasks of Asynq, from its Redis."`
	Beanstalkd beanstalkdCmd `cmd:"" help:"Read the jobs of a beanstalkd."`
}

// job is an add as carillon ctl export writes it.
type job struct {
	ID           string   `json:"id"`
	AtMs         int64    `json:"at_ms"`
	Payload      []byte   `json:"-"` // JSON, which is written as it is
	Bytes        []byte   `json:"payload_base64,omitempty"`
	ContentType  string   `json:"content_type,omitempty"`
	Priority     int      `json:"priority,omitempty"`
	Labels       []string `json:"labels,omitempty"`
	Retry        *retry   `json:"retry,omitempty"`
	ExpiresAfter string   `json:"expires_after,omitempty"`
}

type retry struct {
	MaxAttempts int `json:"max_attempts"`
}

// carry gives the job a payload that arrives with the same bytes.
func (j *job) carry(payload []byte) {
	isJSON := utf8.Valid(payload) && json.Valid(payload)
	switch {
	case isJSON && !bytes.ContainsAny(payload, "\r\n") && depth(payload) <= maxDepth:
		j.Payload = payload
	case isJSON: // a line of the file must stay one
		j.Bytes, j.ContentType = payload, "application/json"
	default:
		j.Bytes = payload
	}
}

const maxDepth = 64 // of JSON that the API takes

// depth is at least the depth of a JSON text: brackets in strings are counted, too.
func depth(text []byte) (most int) {
	open := 0
	for _, c := range text {
		switch c {
		case '{', '[':
			open++
			most = max(most, open)
		case '}', ']':
			open--
		}
	}
	return most
}

var (
	badTopic = regexp.MustCompile(`[^A-Za-z0-9_.-]`)
	badLabel = regexp.MustCompile(`[^A-Za-z0-9_.:=-]`)
)

// idOf is the name itself where it can be an id, else a hash of it.
func idOf(name string) string {
	if web.ValidID(name) && name[0] != '{' {
		return name
	}
	return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(name)))
}

// topicOf is the name of a queue as that of a topic: what cannot be in one becomes "_".
func topicOf(queue string) string {
	name := badTopic.ReplaceAllString(queue, "_")
	if name == "" || strings.ContainsAny(name[:1], "_.-") {
		name = "q" + name
	}
	return name[:min(len(name), 128)]
}

// labelOf is name=value as a label: what cannot be in one becomes "_".
func labelOf(name, value string) string {
	label := badLabel.ReplaceAllString(name+"="+value, "_")
	return label[:min(len(label), 64)]
}

// writer writes the topics of a file one after the other, and reports each to a person.
type writer struct {
	out    *bufio.Writer
	report io.Writer
	now    time.Time

	topic, queue string
	count, due   int
	first        string
}

func newWriter(term *terminal.Terminal) *writer {
	return &writer{out: bufio.NewWriter(term.Data()), report: term.Err, now: time.Now()}
}

// topics has the queues of each topic. It warns of those whose names differ only in characters that
// a topic's name cannot have.
func (w *writer) topics(queues []string) map[string][]string {
	topics := map[string][]string{}
	for _, queue := range queues {
		topics[topicOf(queue)] = append(topics[topicOf(queue)], queue)
	}
	for _, topic := range slices.Sorted(maps.Keys(topics)) {
		if names := topics[topic]; len(names) > 1 {
			fmt.Fprintf(w.report, "carillon: warning: %s become one topic, %s\n", strings.Join(names, " and "), topic)
		}
	}
	return topics
}

// begin opens the topic of a queue. A topic that is there keeps its own policy at the import; else
// it is made with one for consumers that pull.
func (w *writer) begin(queue, topic string, lease time.Duration, paused bool) error {
	w.queue, w.topic, w.count, w.due, w.first = queue, topic, 0, 0, ""
	held := ""
	if paused {
		held = `"paused":true,`
	}
	lease = min(max(lease, time.Second), 12*time.Hour)
	return w.line(fmt.Appendf(nil, `{"export":{"version":1,"topic":%q,%s"policy":{"delivery":"pull","lease":%q}}}`, topic, held, lease))
}

func (w *writer) add(j *job) error {
	j.AtMs = max(j.AtMs, web.LeastMs) // what is due before it is due at once, too
	w.count++
	if j.AtMs <= w.now.UnixMilli() {
		w.due++
	}
	if w.first == "" {
		w.first = fmt.Sprintf("%s, due %s", j.ID, time.UnixMilli(j.AtMs).Format(time.RFC3339))
	}
	line, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if j.Payload != nil {
		line = append(append(append(line[:len(line)-1], `,"payload":`...), j.Payload...), '}')
	}
	return w.line(line)
}

// end closes the topic. want is how many jobs the source counts; left names what stays there.
func (w *writer) end(want int, left ...string) error {
	if w.count != want {
		return fmt.Errorf("%s: read %d jobs of %d: %w", w.queue, w.count, want, errChanged)
	}
	if err := w.line(fmt.Appendf(nil, `{"end":{"timers":%d}}`, w.count)); err != nil {
		return err
	}
	fmt.Fprintf(w.report, "carillon: %s to topic %s: %s, %d of them due now", w.queue, w.topic, terminal.Many(int64(w.count), "timer", "timers"), w.due)
	if w.first != "" {
		fmt.Fprintf(w.report, "; the first is %s", w.first)
	}
	if len(left) > 0 {
		fmt.Fprintf(w.report, "; left out: %s", strings.Join(left, ", "))
	}
	_, err := fmt.Fprintln(w.report)
	return err
}

func (w *writer) line(line []byte) error {
	if _, err := w.out.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write the jobs: %w", err)
	}
	return nil
}

// close writes the rest.
func (w *writer) close() error {
	if err := w.out.Flush(); err != nil {
		return fmt.Errorf("write the jobs: %w", err)
	}
	return nil
}

var errChanged = errors.New("the source changed while it was read: stop its producers and workers, and read again")
