package ctl

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
	"carillon/timer/duration"
)

// exitInFlight is the exit code of cancel when a call of the timer is running.
const exitInFlight = 3

// timerRef names one timer.
type timerRef struct {
	Topic string `arg:"" help:"Topic."`
	ID    string `arg:"" name:"id" help:"The timer's id."`
}

func (t timerRef) path(more ...string) string {
	return client.Path(append([]string{"topics", t.Topic, "timers", t.ID}, more...)...)
}

// timerFields are the parts of a timer that add and patch share. The node checks them; here they
// are only spelled.
type timerFields struct {
	Delay        string   `xor:"when" placeholder:"30m" help:"Due this long from now."`
	At           string   `xor:"when" placeholder:"TIME" help:"Due at this time, as 2027-01-31T12:30:00.250Z."`
	AtLocal      string   `xor:"when" placeholder:"TIME" help:"Due at 2027-01-31T12:30:00 by --zone's clocks."`
	Payload      string   `placeholder:"JSON" help:"What is sent: JSON, @file, or - for stdin."`
	Callback     string   `placeholder:"URL" help:"Where it is sent; else the topic's."`
	Header       []string `sep:"none" placeholder:"'NAME: VALUE'" help:"A header of the callback; repeat for more."`
	Label        []string `placeholder:"LABEL" help:"A label; repeat for more."`
	Priority     *int     `placeholder:"N" help:"0–255, higher first among what is due."`
	Weight       *int     `placeholder:"N" help:"1–100, its key's share of the turns."`
	ExpiresAfter string   `placeholder:"10m" help:"No attempt later than due + this."`
	MaxAttempts  *int     `placeholder:"N" help:"Attempts before it is a dead letter."`
	OnDone       string   `placeholder:"TOPIC" help:"Topic of its outcome when done; - for none."`
	OnDead       string   `placeholder:"TOPIC" help:"The same when it is a dead letter."`
	repeatFields
}

// check refuses the durations that are likeliest to be mistyped, so that they are a fault of usage.
func (f *timerFields) check() error {
	if d, err := duration.Parse(f.Delay); f.Delay != "" && (err != nil || d < 0) {
		return terminal.Usagef("--delay: must be a duration, like 90s, 1h30m or 30d; the units are %s", duration.Units)
	}
	if d, err := duration.Parse(f.Every); f.Every != "" && (err != nil || d < time.Second) {
		return terminal.Usagef("--every: must be a duration of 1s or more; the units are %s", duration.Units)
	}
	return nil
}

func (f *timerFields) write(o *object, term *terminal.Terminal) error {
	o.text("delay", f.Delay)
	o.text("at", f.At)
	o.text("at_local", f.AtLocal)
	series := f.repeatFields
	if f.AtLocal != "" {
		o.text("zone", f.Zone)
		if f.Cron == "" {
			series.Zone = ""
		}
	}
	if f.Payload != "" {
		payload, err := readJSON("payload", f.Payload, term.In)
		if err != nil {
			return err
		}
		o.raw("payload", payload)
	}
	if err := f.writeCallback(o); err != nil {
		return err
	}
	if f.Priority != nil {
		o.set("priority", *f.Priority)
	}
	if f.Weight != nil {
		o.set("weight", *f.Weight)
	}
	if len(f.Label) > 0 {
		o.set("labels", f.Label)
	}
	o.text("expires_after", f.ExpiresAfter)
	if f.MaxAttempts != nil {
		o.set("retry", map[string]int{"max_attempts": *f.MaxAttempts})
	}
	writeOutcome(o, "on_done", f.OnDone)
	writeOutcome(o, "on_dead", f.OnDead)
	return series.write(o)
}

// writeOutcome writes the topic of an outcome; "-" is none, even where the topic's policy has one.
func writeOutcome(o *object, name, topic string) {
	switch topic {
	case "":
	case "-":
		o.set(name, nil)
	default:
		o.set(name, map[string]string{"topic": topic})
	}
}

func (f *timerFields) writeCallback(o *object) error {
	callback := &object{}
	callback.text("url", f.Callback)
	if len(f.Header) > 0 {
		headers := &object{}
		for _, line := range f.Header {
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				return terminal.Usagef("--header: %q is not 'Name: value'", line)
			}
			headers.set(strings.TrimSpace(name), strings.TrimSpace(value))
		}
		callback.raw("headers", headers.bytes())
	}
	if !callback.empty() {
		o.raw("callback", callback.bytes())
	}
	return nil
}

type addCmd struct {
	Topic      string `arg:"" help:"Topic; it is made if it is not there."`
	TimerID    string `name:"id" placeholder:"ID" help:"The timer's id; else the node makes one."`
	Key        string `placeholder:"KEY" help:"Its key; the id becomes {KEY}ID."`
	Merge      string `placeholder:"RULE" help:"When the id is in use: keep, replace, debounce or collect; else the topic's."`
	MaxWait    string `placeholder:"5m" help:"Of debounce, collect: not later than this."`
	CollectMax *int   `placeholder:"N" help:"Of collect: how many make an array full."`
	Part       string `placeholder:"NAME" help:"Of collect: a name, to repeat the add by."`
	IfLate     string `placeholder:"fire|reject" help:"A late --at: taken (default) or refused."`
	DryRun     bool   `help:"Add nothing; print when it would be due."`
	timerFields
}

func (a *addCmd) Run(ctl *Command, term *terminal.Terminal) error {
	switch {
	case a.Delay != "" || a.At != "" || a.AtLocal != "" || a.Cron != "":
	case a.Every != "":
		a.Delay = a.Every
	default:
		return terminal.Usagef("a timer needs a time: --delay or --at, --at-local, --cron or --every")
	}
	if a.Key != "" && a.TimerID != "" && !strings.HasPrefix(a.TimerID, "{") {
		a.TimerID = "{" + a.Key + "}" + a.TimerID
	}
	if err := a.check(); err != nil {
		return err
	}
	o := &object{}
	o.text("id", a.TimerID)
	o.text("key", a.Key)
	o.text("merge", a.Merge)
	o.text("max_wait", a.MaxWait)
	if a.CollectMax != nil {
		o.set("collect_max", *a.CollectMax)
	}
	o.text("part", a.Part)
	o.text("if_late", a.IfLate)
	if err := a.write(o, term); err != nil {
		return err
	}
	status := 0
	r := client.Request{Method: http.MethodPost, Path: client.Path("topics", a.Topic, "timers"), Body: o.bytes(), Status: &status}
	if a.DryRun {
		return ctl.dryRun(term, r, a.Zone)
	}
	body, err := ctl.do(r)
	if err != nil {
		return err
	}
	var t client.Timer
	if err := readAnswer(body, &t); err != nil {
		return err
	}
	if status == http.StatusOK {
		reportExisting(term, &t)
	} else {
		a.warnLate(ctl, term, &t)
		if t.Collected > 0 { // the add began an array
			fmt.Fprintf(term.Err, "carillon: %s: %s\n", t.ID, arrayOf(&t))
		}
	}
	return ctl.printTimer(term, body)
}

func arrayOf(t *client.Timer) string {
	return "its array has " + terminal.Many(int64(t.Collected), "payload", "payloads")
}

func reportExisting(term *terminal.Terminal, t *client.Timer) {
	text := "is there already, just like this; nothing was added"
	switch {
	case t.Merged:
		text = "was there already; the add was merged into it"
		if t.Collected > 0 {
			text += ": " + arrayOf(t)
		}
	case t.State == client.Done || t.State == client.Dead || t.State == client.Cancelled:
		text = fmt.Sprintf("has ended already (%s); nothing was added, and it does not fire again", t.State)
	}
	fmt.Fprintf(term.Err, "carillon: %s %s\n", t.ID, text)
}

type getCmd struct{ timerRef }

func (g *getCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.show(term, client.Request{Method: http.MethodGet, Path: g.path()}, func(body []byte) error {
		return printTimer(term.Out, body, ctl.now)
	})
}

func printTimer(out io.Writer, body []byte, now func() time.Time) error {
	if err := printDetail(out, body, "waits_for", "waits_on", "attempt_log"); err != nil {
		return err
	}
	var t client.Timer
	if err := readAnswer(body, &t); err != nil {
		return err
	}
	if t.WaitsFor != "" {
		fmt.Fprintf(out, "\nwaits for %s\n", printable(waits(&t)))
	}
	if len(t.AttemptLog) > 0 {
		fmt.Fprint(out, "\nattempts\n")
		if err := printAttempts(out, t.AttemptLog); err != nil {
			return err
		}
	}
	if t.State == client.Scheduled && t.Attempts > 0 && !t.NextAttempt.IsZero() {
		when := "due"
		if wait := t.NextAttempt.Sub(now()); wait > 0 {
			when = "in " + wait.Round(100*time.Millisecond).String()
		}
		fmt.Fprintf(out, "next: %s, %s (attempt %d of %d)\n", instant(t.NextAttempt), when, t.Attempts+1, t.MaxAttempts)
	}
	return nil
}

func printAttempts(out io.Writer, attempts []client.Attempt) error {
	t := newTable(out, "ATTEMPT", "STARTED", "LATE", "TOOK", "RESULT")
	for i := range attempts {
		a := &attempts[i]
		late, took := "", ""
		if a.LatenessMs != nil {
			late = fmt.Sprintf("%d ms", *a.LatenessMs)
		}
		if a.EndedMs > 0 {
			took = fmt.Sprintf("%d ms", a.EndedMs-a.StartedMs)
		}
		t.row(fmt.Sprint(a.Attempt), instant(time.UnixMilli(a.StartedMs)), late, took, cmp.Or(ended(a.Status, a.Error), "acked"))
	}
	if err := t.w.Flush(); err != nil {
		return err
	}
	for i := range attempts {
		printAnswer(out, &attempts[i])
	}
	return nil
}

// printAnswer prints what the receiver answered to an attempt, if it did.
func printAnswer(out io.Writer, a *client.Attempt) {
	if a.AnswerType == "" && a.Location == "" && a.Answer == "" && len(a.AnswerBytes) == 0 {
		return
	}
	fmt.Fprintf(out, "\nanswer to attempt %d", a.Attempt)
	if a.AnswerType != "" {
		fmt.Fprintf(out, " (%s)", printable(a.AnswerType))
	}
	fmt.Fprintln(out)
	if a.Location != "" {
		fmt.Fprintf(out, "  location: %s\n", printable(a.Location))
	}
	for line := range strings.Lines(a.Answer) {
		fmt.Fprintf(out, "  %s\n", printable(strings.TrimRight(line, "\r\n")))
	}
	if len(a.AnswerBytes) > 0 {
		fmt.Fprintf(out, "  %d bytes that are not text\n", len(a.AnswerBytes))
	}
}

type patchCmd struct {
	timerRef
	IfMatch uint32 `placeholder:"VERSION" help:"Only if this is still its version."`
	DryRun  bool   `help:"Change nothing; print when it would be due."`
	timerFields
}

func (p *patchCmd) Run(ctl *Command, term *terminal.Terminal) error {
	if err := p.check(); err != nil {
		return err
	}
	o := &object{}
	if err := p.write(o, term); err != nil {
		return err
	}
	if o.empty() {
		return terminal.Usagef("nothing to change: give at least one of the timer's parts, such as --delay")
	}
	r := client.Request{Method: http.MethodPatch, Path: p.path(), Body: o.bytes(), IfMatch: p.IfMatch}
	if p.DryRun {
		return ctl.dryRun(term, r, p.Zone)
	}
	return ctl.showTimer(term, r)
}

// oneOrMany are the arguments of a change of one timer, or of all that a filter selects.
type oneOrMany struct {
	Topic   string `arg:"" help:"Topic."`
	ID      string `arg:"" optional:"" name:"id" help:"The timer's id; without one, filters such as --label select the timers."`
	IfMatch uint32 `placeholder:"VERSION" help:"Only if this is still its version."`
	timerFilter
}

// run changes the one timer by one, or the others by a call to path.
func (m *oneOrMany) run(ctl *Command, term *terminal.Terminal, verb, path string, one func() error) error {
	switch {
	case m.ID == "" && m.IfMatch != 0:
		return terminal.Usagef("--if-match goes with a timer's id")
	case m.ID != "" && m.DryRun:
		return terminal.Usagef("--dry-run goes with a filter; carillon ctl get shows one timer")
	case m.ID != "" && m.given():
		return terminal.Usagef("an id and a filter: give one of the two")
	case m.ID != "":
		return one()
	}
	o := &object{}
	if err := m.write(o); err != nil {
		return err
	}
	return m.change(ctl, term, verb, o, "topics", m.Topic, path)
}

type cancelCmd struct{ oneOrMany }

func (c *cancelCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return c.run(ctl, term, "cancel", "cancel", func() error { return c.one(ctl, term) })
}

func (c *cancelCmd) one(ctl *Command, term *terminal.Terminal) error {
	body, err := ctl.do(client.Request{Method: http.MethodDelete, Path: timerRef{c.Topic, c.ID}.path(), IfMatch: c.IfMatch})
	if err != nil {
		return err
	}
	var answer struct {
		Outcome client.Outcome `json:"outcome"`
	}
	if err := readAnswer(body, &answer); err != nil {
		return err
	}
	if err := printOutcome(ctl, term, body, answer.Outcome); err != nil {
		return err
	}
	if answer.Outcome == client.InFlight {
		return terminal.QuietExit(exitInFlight)
	}
	return nil
}

func printOutcome(ctl *Command, term *terminal.Terminal, body []byte, outcome client.Outcome) error {
	if ctl.JSON {
		return printJSON(term.Out, body)
	}
	meaning := map[client.Outcome]string{
		client.Prevented: "no attempt starts any more",
		client.InFlight:  "a call is running; no further one starts",
	}[outcome]
	_, err := fmt.Fprintf(term.Out, "%s: %s\n", outcome, meaning)
	return err
}

// timerCommands are those that let a timer go, or hold it.
type timerCommands struct {
	Fire   fireCmd   `cmd:"" help:"Attempt a timer now; its due time stays."`
	Timers timersCmd `cmd:"" help:"Hold timers: pause, resume."`
}

type timersCmd struct {
	Pause  pauseTimerCmd  `cmd:"" help:"Hold a timer, or all that a filter selects, until it is resumed."`
	Resume resumeTimerCmd `cmd:"" help:"Resume a paused timer, or all that a filter selects."`
}

type pauseTimerCmd struct{ oneOrMany }

func (p *pauseTimerCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return p.hold(ctl, term, "pause")
}

type resumeTimerCmd struct{ oneOrMany }

func (r *resumeTimerCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return r.hold(ctl, term, "resume")
}

func (m *oneOrMany) hold(ctl *Command, term *terminal.Terminal, verb string) error {
	return m.run(ctl, term, verb, verb+"-timers", func() error {
		return ctl.showTimer(term, client.Request{Method: http.MethodPost, Path: timerRef{m.Topic, m.ID}.path(verb), IfMatch: m.IfMatch})
	})
}

type fireCmd struct{ timerRef }

func (f *fireCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.showTimer(term, client.Request{Method: http.MethodPost, Path: f.path("fire")})
}

// showTimer makes a call that answers with a timer, and prints that.
func (c *Command) showTimer(term *terminal.Terminal, r client.Request) error {
	body, err := c.do(r)
	if err != nil {
		return err
	}
	return c.printTimer(term, body)
}

func (c *Command) printTimer(term *terminal.Terminal, body []byte) error {
	if c.JSON {
		return printJSON(term.Out, body)
	}
	return printTimers(1)(term.Out, []json.RawMessage{body})
}
