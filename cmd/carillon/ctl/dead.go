package ctl

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

type deadLetterCommands struct {
	Dead    deadCmd        `cmd:"" help:"Dead letters: list, redrive, purge."`
	Redrive deadRedriveCmd `cmd:"" hidden:"" help:"Try dead letters again, as dead redrive does."`
}

type deadCmd struct {
	List    deadListCmd    `cmd:"" help:"List a topic's dead letters."`
	Redrive deadRedriveCmd `cmd:"" help:"Try dead letters again, from the first attempt."`
	Purge   deadPurgeCmd   `cmd:"" help:"Remove dead letters."`
}

// deadFilter selects dead letters by how and when they died.
type deadFilter struct {
	Reason string   `json:"reason,omitempty" placeholder:"REASON" help:"max_attempts, expired, stopped or refused."`
	From   string   `json:"from,omitempty" placeholder:"TIME" help:"Dead at this time or later."`
	To     string   `json:"to,omitempty" placeholder:"TIME" help:"Dead before this time."`
	Label  []string `json:"label,omitempty" placeholder:"LABEL" help:"With this label; repeat for: with all of these."`
}

type deadListCmd struct {
	Topic string `arg:"" help:"Topic."`
	deadFilter
	Limit int `default:"100" help:"Limit; 0 is all (${default})."`
}

func (l *deadListCmd) Run(ctl *Command, term *terminal.Terminal) error {
	query := queryOf("reason", l.Reason, "from", l.From, "to", l.To)
	query["label"] = l.Label
	return ctl.showPages(term, listing{
		path: client.Path("topics", l.Topic, "dead"), query: query, member: "timers", limit: l.Limit, print: printDead,
	})
}

// deadSelector selects dead letters: by id, by a filter, or all.
type deadSelector struct {
	dryRunFlag
	Topic string   `arg:"" help:"Topic."`
	IDs   []string `arg:"" optional:"" name:"id" help:"Ids of the dead letters; of each the one that died last."`
	UID   []string `placeholder:"UID" help:"The one with this uid; repeat for several. An id may have several dead letters."`
	All   bool     `help:"All of the topic."`
	deadFilter
}

func (s *deadSelector) write(o *object) error {
	filter := plain(s.deadFilter)
	ways := 0
	for _, given := range []bool{len(s.IDs) > 0, len(s.UID) > 0, s.All, string(filter) != "{}"} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return terminal.Usagef("ids, --uid, --all, or a filter: give one of them")
	case len(s.IDs) > 0:
		o.set("ids", s.IDs)
	case len(s.UID) > 0:
		o.set("uids", s.UID)
	case s.All:
		o.set("all", true)
	case ways == 0:
		return terminal.Usagef("which ones? give their ids, --uid, --reason, --from, --to, --label, or --all")
	default:
		o.raw("filter", filter)
	}
	return nil
}

type deadRedriveCmd struct {
	deadSelector
	Delay    string `placeholder:"5m" help:"Not before this long from now."`
	Callback string `placeholder:"URL" help:"Call this URL instead."`
}

func (r *deadRedriveCmd) Run(ctl *Command, term *terminal.Terminal) error {
	o := &object{}
	if err := r.write(o); err != nil {
		return err
	}
	o.text("delay", r.Delay)
	if r.Callback != "" {
		o.set("callback", map[string]string{"url": r.Callback})
	}
	return r.change(ctl, term, "redrive", o, "topics", r.Topic, "dead", "redrive")
}

type deadPurgeCmd struct{ deadSelector }

func (p *deadPurgeCmd) Run(ctl *Command, term *terminal.Terminal) error {
	o := &object{}
	if err := p.write(o); err != nil {
		return err
	}
	return p.change(ctl, term, "purge", o, "topics", p.Topic, "dead", "purge")
}

// change makes a call that is to do something to many timers, and prints how many it reached.
func (d dryRunFlag) change(ctl *Command, term *terminal.Terminal, verb string, o *object, path ...string) error {
	r := client.Request{Method: http.MethodPost, Path: client.Path(path...), Body: o.bytes()}
	if d.DryRun {
		r.Query = url.Values{"dry_run": {"true"}}
	}
	return ctl.show(term, r, reading(func(answer *client.Counts) (err error) {
		if answer.DryRun {
			err = printTrial(term.Out, verb, answer)
		} else {
			_, err = fmt.Fprintf(term.Out, "matched %d, changed %d, skipped %d\n", answer.Matched, answer.Changed, answer.Skipped)
		}
		for i := range answer.Skips {
			if s := &answer.Skips[i]; err == nil {
				_, err = fmt.Fprintf(term.Out, "skipped %s: %s\n", printable(strings.TrimSpace(s.ID+" "+s.UID)), printable(s.Detail))
			}
		}
		return err
	}))
}

func printTrial(out io.Writer, verb string, n *client.Counts) error {
	text := fmt.Sprintf("would %s %d of %d", verb, n.Changed, n.Matched)
	if n.First != "" {
		text += ", first " + printable(n.First)
	}
	if n.Skipped > 0 {
		text += fmt.Sprintf("; %d cannot be now", n.Skipped)
	}
	_, err := fmt.Fprintln(out, text)
	return err
}
