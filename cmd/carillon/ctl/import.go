package ctl

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"carillon/cmd/carillon/terminal"
	"carillon/transport/api/web"
)

type importCmd struct {
	File           string `arg:"" help:"What export wrote; - for stdin."`
	WithoutSecrets bool   `help:"Import timers whose credentials are not in the file, as export does not get them; their headers are left out."`
	RestartCounts  bool   `help:"Import series with a count; they count from 1 again."`
	DryRun         bool   `help:"Read and check the file, and change nothing."`
}

// Run reads the whole file before it changes anything: a file that was cut, or that would lose
// fields without consent, changes nothing.
func (i *importCmd) Run(ctl *Command, term *terminal.Terminal) error {
	file, err := i.open(term.In)
	if err != nil {
		return err
	}
	defer file.Close()
	check := importCheck{ctl: ctl}
	if err := readExport(file, &check); err != nil {
		return err
	}
	if check.bare != "" && !i.WithoutSecrets {
		return terminal.Usagef("topic %s has secrets or credentials that export could not have: make it first, with its policy, or leave them out with --without-secrets", check.bare)
	}
	if check.hidden > 0 && !i.WithoutSecrets {
		return terminal.Usagef("%d timers have credentials in their headers that export could not have; --without-secrets leaves those headers out", check.hidden)
	}
	if check.counted > 0 && !i.RestartCounts {
		return terminal.Usagef("%d series come a number of times, and the file does not say how often they have come; --restart-counts counts from 1 again", check.counted)
	}
	if i.DryRun && ctl.JSON {
		o := &object{}
		o.set("timers", check.timers)
		o.set("topics", check.topics)
		if check.tooLarge > 0 {
			o.set("refused", check.tooLarge)
		}
		o.set("dry_run", true)
		return cmp.Or(printJSON(term.Out, o.bytes()), check.refused())
	}
	if err := check.refused(); i.DryRun && err != nil {
		return err
	}
	if i.DryRun {
		_, err := fmt.Fprintf(term.Out, "good: %s of %s; nothing was changed\n%s",
			terminal.Many(int64(check.timers), "timer", "timers"), terminal.Many(int64(check.topics), "topic", "topics"), check.samples)
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	run := importRun{ctl: ctl, term: term}
	if err := readExport(file, &run); err != nil {
		return err
	}
	if run.refused > 0 {
		return fmt.Errorf("%d of %d timers were not imported", run.refused, check.timers)
	}
	return nil
}

// open gives a file that can be read twice: stdin is copied to one that is gone when it is closed.
func (i *importCmd) open(stdin io.Reader) (*os.File, error) {
	if i.File != "-" {
		return os.Open(i.File)
	}
	f, err := os.CreateTemp("", "carillon-import-*")
	if err != nil {
		return nil, fmt.Errorf("keep what comes on stdin: %w; set TMPDIR to a folder with room for it", err)
	}
	if err = os.Remove(f.Name()); err == nil {
		_, err = io.Copy(f, stdin)
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("keep what comes on stdin: %w", err)
	}
	return f, nil
}

// importer takes an export line by line.
type importer interface {
	topic(head *exportHead) error
	timer(add *importedAdd) error
	end() error
}

// importedAdd is one line.
type importedAdd struct {
	line   []byte // valid until the next one
	fields map[string]json.RawMessage
	id     string
}

const maxImportLine = 2 << 20 // above any add that a node takes

// readExport reads the topics of a file, one after the other.
func readExport(r io.Reader, to importer) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxImportLine)
	open, timers, number, topics := false, 0, 0, 0
	for lines.Scan() {
		number++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		fault := func(err error) error { return fmt.Errorf("line %d: %w", number, err) }
		var l struct {
			Export *exportHead `json:"export"`
			End    *exportEnd  `json:"end"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return fault(fmt.Errorf("this is not what export wrote: %w", err))
		}
		var err error
		switch {
		case l.Export != nil && open:
			return fault(errors.New("a topic begins before the one before has ended: the file is damaged"))
		case l.Export != nil && l.Export.Version != exportVersion:
			return fault(fmt.Errorf("the export has version %d, this build reads %d", l.Export.Version, exportVersion))
		case l.Export != nil:
			open, timers, topics = true, 0, topics+1
			err = to.topic(l.Export)
		case !open:
			return fault(errors.New(`the first line must be {"export":…}: this is not what export wrote`))
		case l.End != nil && l.End.Timers != timers:
			return fault(fmt.Errorf("there are %d timers, and should be %d: the file is damaged", timers, l.End.Timers))
		case l.End != nil:
			open = false
			err = to.end()
		default:
			timers++
			var add *importedAdd
			if add, err = readAdd(line); err == nil {
				err = to.timer(add)
			}
		}
		if err != nil {
			return fault(err)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("line %d is longer than %d bytes, which no node takes as an add: the file is damaged, or the timer's payload is too large; nothing was imported, take the line out and count one less in the topic's last line", number+1, maxImportLine)
	} else if err != nil {
		return fmt.Errorf("line %d: %w", number+1, err)
	}
	if open || topics == 0 {
		return fmt.Errorf("the file ends after line %d without its last line: it was cut, nothing of it can be trusted", number)
	}
	return nil
}

// readAdd takes only adds that can be repeated safely.
func readAdd(line []byte) (*importedAdd, error) {
	add := &importedAdd{line: line}
	if err := json.Unmarshal(line, &add.fields); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(add.fields["id"], &add.id); err != nil || add.id == "" {
		return nil, errors.New("the timer has no id, so a second import would add it again")
	}
	if add.fields["at_ms"] == nil && add.fields["at"] == nil && add.fields["at_local"] == nil {
		return nil, fmt.Errorf("%s: the timer has no absolute time (at, at_ms or at_local)", add.id)
	}
	for _, name := range []string{"op", "merge", "if_match"} {
		if add.fields[name] != nil {
			return nil, fmt.Errorf("%s: %q is not for an import", add.id, name)
		}
	}
	return add, nil
}

// payloadBytes is how long the payload is as it is delivered.
func (a *importedAdd) payloadBytes() int {
	coded := a.fields["payload_base64"]
	if coded == nil {
		return len(a.fields["payload"])
	}
	return base64.RawStdEncoding.DecodedLen(len(bytes.TrimRight(bytes.Trim(coded, `"`), "=")))
}

// importCheck only counts, and keeps samples.
type importCheck struct {
	ctl                             *Command
	topics, timers, hidden, counted int
	// A topic that is not there, whose policy lacks its secrets.
	bare string
	// Timers whose payloads no node takes, and the first of them.
	tooLarge      int
	firstTooLarge string

	// The topic that is being read, its timers so far, and the first of them.
	name    string
	count   int
	first   string
	samples []byte // a line for each topic, of some
}

// Bounds of what a dry run shows.
const (
	importSamples = 20  // topics
	importSample  = 200 // bytes of a timer
)

func (c *importCheck) end() error {
	if c.topics <= importSamples {
		c.samples = fmt.Appendf(c.samples, "%s: %s, the first %s\n", c.name, terminal.Many(int64(c.count), "timer", "timers"), cmp.Or(c.first, "none"))
	}
	return nil
}

func (c *importCheck) topic(head *exportHead) error {
	c.topics++
	c.name, c.count, c.first = head.Topic, 0, ""
	if c.bare != "" || !hidesPolicy(head.Policy) {
		return nil
	}
	there, err := c.ctl.findTopic(head.Topic)
	if err == nil && there == nil {
		c.bare = head.Topic
	}
	return err
}

func (c *importCheck) timer(add *importedAdd) error {
	c.timers++
	c.count++
	if c.count == 1 {
		c.first = strings.ToValidUTF8(string(add.line[:min(len(add.line), importSample)]), "")
	}
	if hidesHeader(add.fields["callback"]) {
		c.hidden++
	}
	if endsByCount(add.fields["repeat"]) {
		c.counted++
	}
	if add.payloadBytes() > web.DefaultLimits().PayloadBytes {
		c.tooLarge++
		c.firstTooLarge = cmp.Or(c.firstTooLarge, add.id)
	}
	return nil
}

// refused is what an import would end with, as far as the file shows it; nil: with success.
func (c *importCheck) refused() error {
	if c.tooLarge == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d timers would not be imported, as payloads are over %d bytes; the first is that of %s; nothing was changed",
		c.tooLarge, c.timers, web.DefaultLimits().PayloadBytes, printable(c.firstTooLarge))
}
