package ctl

import (
	"encoding/json"
	"fmt"
	"io"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

type historyCmd struct {
	Topic string `arg:"" help:"Topic."`
	ID    string `name:"id" placeholder:"ID" help:"Of the timers with this id only."`
	State string `placeholder:"STATE,…" help:"done, dead, cancelled; else all of them."`
	From  string `placeholder:"TIME" help:"Ended at this time or later."`
	To    string `placeholder:"TIME" help:"Ended before this time."`
	Limit int    `default:"100" help:"Limit; 0 is all (${default})."`
}

func (h *historyCmd) Run(ctl *Command, term *terminal.Terminal) error {
	query := queryOf("id", h.ID, "state", h.State, "from", h.From, "to", h.To)
	return ctl.showPages(term, listing{
		path: client.Path("topics", h.Topic, "history"), query: query, member: "entries", limit: h.Limit, print: printHistory,
	})
}

func printHistory(out io.Writer, entries []json.RawMessage) error {
	return printRows(out, entries, []string{"ENDED", "ID", "STATE", "DUE", "ATTEMPTS", "LAST"}, func(e *client.Entry) []string {
		state := string(e.State)
		if e.Reason != "" {
			state += " (" + string(e.Reason) + ")"
		}
		return []string{instant(e.Ended), e.ID, state, instant(e.Due), fmt.Sprint(e.Attempts), last(&e.Timer)}
	})
}
