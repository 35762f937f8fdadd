package ctl

import (
	"fmt"
	"net/http"
	"net/url"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

type topicsCmd struct {
	List   topicsListCmd  `cmd:"" default:"1" help:"List topics."`
	Get    topicGetCmd    `cmd:"" help:"Show a topic: its policy and how many timers it has."`
	Put    topicPutCmd    `cmd:"" help:"Make a topic or set its whole policy."`
	Delete topicDeleteCmd `cmd:"" help:"Delete a topic."`
	Rotate topicRotateCmd `cmd:"" help:"Change the secret that signs a topic's callbacks, without a call that receivers refuse."`
	Pause  topicPauseCmd  `cmd:"" help:"Stop firing; timers wait."`
	Resume topicResumeCmd `cmd:"" help:"Fire again."`
}

// topicRef names one topic.
type topicRef struct {
	Topic string `arg:"" help:"Topic."`
}

type topicsListCmd struct {
	Prefix string `placeholder:"TEXT" help:"Only topics whose names begin so."`
	Limit  int    `default:"100" help:"At most so many; 0 is all (${default})."`
}

func (l *topicsListCmd) Run(ctl *Command, term *terminal.Terminal) error {
	query := url.Values{"counts": {"true"}}
	if l.Prefix != "" {
		query.Set("prefix", l.Prefix)
	}
	return ctl.showPages(term, listing{path: client.Path("topics"), query: query, member: "topics", limit: l.Limit, print: printTopics})
}

type topicGetCmd struct{ topicRef }

func (g *topicGetCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.showTopic(term, client.Request{Method: http.MethodGet, Path: client.Path("topics", g.Topic)})
}

type topicPutCmd struct {
	topicRef
	Policy string `required:"" placeholder:"JSON" help:"The policy: JSON, @file, or - for stdin; what it leaves out takes the default."`
}

func (*topicPutCmd) Examples() string {
	return `carillon ctl topics put orders --policy '{"callback":{"url":"https://shop.example/hooks"},"retry":{"max_attempts":5}}'
carillon ctl topics put orders --policy @orders.json`
}

func (p *topicPutCmd) Run(ctl *Command, term *terminal.Terminal) error {
	policy, err := readJSON("policy", p.Policy, term.In)
	if err != nil {
		return err
	}
	return ctl.showTopic(term, client.Request{Method: http.MethodPut, Path: client.Path("topics", p.Topic), Body: policy})
}

type topicDeleteCmd struct {
	topicRef
	Force bool `help:"Even with timers in it: they are cancelled."`
}

func (d *topicDeleteCmd) Run(ctl *Command, term *terminal.Terminal) error {
	query := url.Values{}
	if d.Force {
		query.Set("force", "true")
	}
	body, err := ctl.do(client.Request{Method: http.MethodDelete, Path: client.Path("topics", d.Topic), Query: query})
	if err != nil {
		return err
	}
	if ctl.JSON {
		return printJSON(term.Out, body)
	}
	var answer struct {
		Cancelled int `json:"cancelled"`
	}
	if err := readAnswer(body, &answer); err != nil {
		return err
	}
	_, err = fmt.Fprintf(term.Out, "deleted; timers cancelled: %d\n", answer.Cancelled)
	return err
}

type topicPauseCmd struct{ topicRef }

func (p *topicPauseCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.showTopic(term, client.Request{Method: http.MethodPost, Path: client.Path("topics", p.Topic, "pause")})
}

type topicResumeCmd struct{ topicRef }

func (r *topicResumeCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.showTopic(term, client.Request{Method: http.MethodPost, Path: client.Path("topics", r.Topic, "resume")})
}

// showTopic makes a call that answers with a topic, and prints that.
func (c *Command) showTopic(term *terminal.Terminal, r client.Request) error {
	body, err := c.do(r)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(term.Out, body)
	}
	return printDetail(term.Out, body)
}
