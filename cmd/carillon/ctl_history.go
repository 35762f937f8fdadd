package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
)

type ctlHistoryCmd struct {
	Topic string `arg:"" help:"Topic."`
	ID    string `name:"id" placeholder:"ID" help:"Of the timers with this id only."`
	State string `placeholder:"STATE,…" help:"done, dead, cancelled; else all of them."`
	From  string `placeholder:"TIME" help:"Ended at this time or later."`
	To    string `placeholder:"TIME" help:"Ended before this time."`
	Limit int    `default:"100" help:"At most so many; 0 is all (${default})."`
}

func (*ctlHistoryCmd) Examples() string {
	return `carillon ctl history orders --state dead,cancelled
carillon ctl history orders --id order-77 --json`
}

func (h *ctlHistoryCmd) Run(ctl *ctlCmd, term *terminal) error {
	query := url.Values{}
	setQuery(query, "id", h.ID)
	setQuery(query, "state", h.State)
	setQuery(query, "from", h.From)
	setQuery(query, "to", h.To)
	return ctl.showPages(term, listing{
		path: apiPath("topics", h.Topic, "history"), query: query, member: "entries", limit: h.Limit, print: printHistory,
	})
}

func printHistory(out io.Writer, entries []json.RawMessage) error {
	rows, err := readTimers(entries)
	if err != nil {
		return err
	}
	t := newTable(out, "ENDED", "ID", "STATE", "DUE", "ATTEMPTS", "LAST")
	for i, r := range rows {
		var end struct {
			Ended string `json:"ended"`
		}
		if err := json.Unmarshal(entries[i], &end); err != nil {
			return fmt.Errorf("read an entry of the answer: %w", err)
		}
		state := r.State
		if r.Reason != "" {
			state += " (" + r.Reason + ")"
		}
		t.row(end.Ended, r.ID, state, r.Due, fmt.Sprint(r.Attempts), r.last())
	}
	return t.w.Flush()
}
