package ctl

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

type tailCmd struct {
	Topic string   `arg:"" optional:"" help:"Of this topic only."`
	Kind  []string `enum:"fired,dead,added,changed,cancelled" placeholder:"KIND" help:"fired, dead, added, changed or cancelled; else all. Repeat for more."`
	Label []string `placeholder:"LABEL" help:"Of timers with this label; repeat for: with all of these."`
}

// Run shows events until a signal comes, and outlives nodes that stop. It does not begin without one:
// --url is wrong then, mostly.
func (c *tailCmd) Run(ctl *Command, term *terminal.Terminal) error {
	if _, err := ctl.do(client.Request{Method: http.MethodGet, Path: "/healthz"}); err != nil {
		return err
	}
	ctx, release := terminal.UntilSignal(term)
	defer release()
	filter := client.EventFilter{Topic: c.Topic, Labels: c.Label}
	for _, kind := range c.Kind {
		filter.Kinds = append(filter.Kinds, client.EventKind(kind))
	}
	for e, err := range ctl.client.Events(ctx, filter) {
		if err != nil {
			return ctl.explain(err, false)
		}
		switch {
		case e.Kind == client.EventMissed:
			fmt.Fprintln(term.Err, "carillon: "+printable(missed(e)))
		case ctl.JSON:
			o := &object{}
			o.set("event", e.Kind)
			o.raw("data", e.Raw)
			err = printJSON(term.Out, o.bytes())
		default:
			_, err = fmt.Fprintln(term.Out, printable(eventLine(e)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// missed counts the events that are not shown.
func missed(e *client.Event) string {
	if e.Missed > 0 {
		return fmt.Sprintf("%d events are not shown: this side is too slow", e.Missed)
	}
	return fmt.Sprintf("events of %s may be missing: %s", cmp.Or(e.Node, "all nodes"), cmp.Or(e.Error, "the connection broke"))
}

func eventLine(e *client.Event) string {
	parts := []string{instant(e.At), fmt.Sprintf("%-9s", e.Kind), e.Topic + "/" + e.ID}
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch e.Kind {
	case client.EventFired:
		add("attempt %d %s", e.Attempt, e.Result)
		if e.Status != 0 {
			add("%d", e.Status)
		}
		if e.Attempt == 1 {
			add("+%d ms", e.LateMs)
		}
		if !e.NextAttempt.IsZero() {
			add("next %s", instant(e.NextAttempt))
		}
	case client.EventAdded, client.EventChanged:
		add("due %s", instant(e.Due))
	case client.EventDead:
		add("%s", e.Reason)
	}
	if e.Error != "" {
		add("%s", e.Error)
	}
	return strings.Join(parts, " ")
}
