package ctl

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

type topicsCmd struct {
	List   topicsListCmd  `cmd:"" default:"1" help:"List topics."`
	Get    topicGetCmd    `cmd:"" help:"Show a topic: its policy and how many timers it has."`
	Set    topicSetCmd    `cmd:"" help:"Change some fields of a topic's policy, and no others."`
	Put    topicPutCmd    `cmd:"" help:"Make a topic, or set its whole policy: what it leaves out goes back to the default."`
	Delete topicDeleteCmd `cmd:"" help:"Delete a topic."`
	Rotate topicRotateCmd `cmd:"" help:"Change the secret that signs a topic's callbacks, without a call that receivers refuse."`
	Pause  topicPauseCmd  `cmd:"" help:"Stop firing; timers wait."`
	Resume topicResumeCmd `cmd:"" help:"Fire again."`

	Export topicsExportCmd `cmd:"" help:"Write topics and their policies as a file for apply."`
}

// topicRef names one topic.
type topicRef struct {
	Topic string `arg:"" help:"Topic."`
}

type topicsListCmd struct {
	Prefix string `placeholder:"TEXT" help:"Only topics whose names begin with this."`
	Limit  int    `default:"100" help:"Limit; 0 is all (${default})."`
}

func (l *topicsListCmd) Run(ctl *Command, term *terminal.Terminal) error {
	query := queryOf("counts", "true", "prefix", l.Prefix)
	return ctl.showPages(term, listing{path: client.Path("topics"), query: query, member: "topics", limit: l.Limit, print: printTopics})
}

type topicGetCmd struct{ topicRef }

func (g *topicGetCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.showDetail(term, client.Request{Method: http.MethodGet, Path: client.Path("topics", g.Topic)})
}

// topicCondition guards a change of a topic.
type topicCondition struct {
	IfMatch string `placeholder:"VERSION" help:"Only if this is still its version, as topics get shows it."`
	Force   bool   `help:"Even if pending timers are left without a URL, or receivers without the secrets that they check."`
	DryRun  bool   `help:"Change nothing; show what would change, or why it is refused."`
}

func (c *topicCondition) request(method, topic string, body []byte) client.Request {
	r := client.Request{Method: method, Path: client.Path("topics", topic), Body: body, IfTopic: c.IfMatch}
	r.Query = url.Values{}
	if c.Force {
		r.Query.Set("force", "true")
	}
	if c.DryRun {
		r.Query.Set("dry_run", "true")
	}
	return r
}

// change makes the call, and prints the topic, or what would change.
func (c *topicCondition) change(ctl *Command, term *terminal.Terminal, r client.Request) error {
	if !c.DryRun {
		return ctl.showDetail(term, r)
	}
	return ctl.show(term, r, reading(func(answer *plannedTopic) error {
		s := step{Topic: answer.Topic, Action: answer.Action, Changes: answer.Changes, Note: answer.warning()}
		_, err := fmt.Fprintf(term.Out, "%s\nnothing was changed\n", printable(s.String()))
		return err
	}))
}

type topicSetCmd struct {
	topicRef
	Fields []string `arg:"" name:"key=value" help:"Fields of the policy; those in objects as retry.max_attempts=5. A value is JSON, or a text; null stands for the default."`
	topicCondition
}

func (s *topicSetCmd) Run(ctl *Command, term *terminal.Terminal) error {
	body, err := patchOf(s.Fields)
	if err != nil {
		return err
	}
	return s.change(ctl, term, s.request(http.MethodPatch, s.Topic, body))
}

// patchOf makes an object of fields: key=value, object.key=value, or deeper.
func patchOf(fields []string) ([]byte, error) {
	values := map[string]any{}
	for _, field := range fields {
		name, text, found := strings.Cut(field, "=")
		if !found || name == "" {
			return nil, terminal.Usagef("%s: must be key=value", field)
		}
		if strings.HasPrefix(name, "callback.headers.") {
			return nil, terminal.Usagef("%s: headers change as a whole: callback.headers='{…}'", name)
		}
		value := json.RawMessage(text)
		if !json.Valid(value) || name == "key" && text != "null" {
			value = plain(text)
		}
		into, path := values, strings.Split(name, ".")
		last := len(path) - 1
		for i, object := range path[:last] {
			inner, is := into[object].(map[string]any)
			if _, given := into[object]; given && !is {
				return nil, terminal.Usagef("%s: is given whole and by its fields", strings.Join(path[:i+1], "."))
			}
			if !is {
				inner = map[string]any{}
				into[object] = inner
			}
			into = inner
		}
		switch given := into[path[last]].(type) {
		case nil:
		case map[string]any:
			return nil, terminal.Usagef("%s: is given whole and by its fields", name)
		default:
			return nil, terminal.Usagef("%s: is given twice, %s before", field, given)
		}
		into[path[last]] = value
	}
	return plain(values), nil
}

type topicPutCmd struct {
	topicRef
	Policy string `required:"" placeholder:"JSON" help:"The whole policy: JSON, @file, or - for stdin; what it leaves out goes back to the default."`
	topicCondition
}

func (p *topicPutCmd) Run(ctl *Command, term *terminal.Terminal) error {
	policy, err := readJSON("policy", p.Policy, term.In)
	if err != nil {
		return err
	}
	return p.change(ctl, term, p.request(http.MethodPut, p.Topic, policy))
}

type topicDeleteCmd struct {
	topicRef
	Force  bool `help:"Even with timers in it: they are cancelled, and its dead letters are dropped. Or if other topics name it in on_done or on_dead."`
	DryRun bool `help:"Change nothing; print how many timers and dead letters would go."`
}

func (d *topicDeleteCmd) Run(ctl *Command, term *terminal.Terminal) error {
	if d.DryRun {
		return d.count(ctl, term)
	}
	query := url.Values{}
	if d.Force {
		query.Set("force", "true")
	}
	remove := client.Request{Method: http.MethodDelete, Path: client.Path("topics", d.Topic), Query: query}
	return ctl.show(term, remove, reading(func(answer *struct {
		Cancelled int `json:"cancelled"`
	}) error {
		_, err := fmt.Fprintf(term.Out, "deleted; timers cancelled: %d\n", answer.Cancelled)
		return err
	}))
}

// count prints what a deletion would do.
func (d *topicDeleteCmd) count(ctl *Command, term *terminal.Terminal) error {
	read := client.Request{Method: http.MethodGet, Path: client.Path("topics", d.Topic)}
	return ctl.show(term, read, reading(func(topic *struct {
		Counts struct{ Scheduled, Leased, Dead int } // what is ready is scheduled, too
	}) error {
		n := &topic.Counts
		pending, needs := n.Scheduled+n.Leased, ""
		switch {
		case d.Force:
		case pending+n.Dead > 0:
			needs = "; it needs --force"
		default: // who names it is not counted
			needs = ", unless other topics name it in on_done or on_dead"
		}
		_, err := fmt.Fprintf(term.Out, "would delete the topic, cancel %d timers and drop %d dead letters%s\n", pending, n.Dead, needs)
		return err
	}))
}

type topicPauseCmd struct{ topicRef }

func (p *topicPauseCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.showDetail(term, client.Request{Method: http.MethodPost, Path: client.Path("topics", p.Topic, "pause")})
}

type topicResumeCmd struct{ topicRef }

func (r *topicResumeCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.showDetail(term, client.Request{Method: http.MethodPost, Path: client.Path("topics", r.Topic, "resume")})
}

// showDetail makes a call that answers with a topic or shard, and prints that.
func (c *Command) showDetail(term *terminal.Terminal, r client.Request) error {
	return c.show(term, r, func(body []byte) error { return printDetail(term.Out, body) })
}
