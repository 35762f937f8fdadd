package ctl

import (
	"encoding/json"
	"fmt"
	"io"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

type destinationsCmd struct {
	State string `placeholder:"STATE,…" help:"open, half-open, closed; else all of them."`
	Limit int    `default:"100" help:"At most so many; 0 is all (${default})."`
}

func (*destinationsCmd) Examples() string {
	return `carillon ctl destinations
carillon ctl destinations --state open,half-open --limit 0`
}

func (d *destinationsCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.showPages(term, listing{
		path: client.Path("destinations"), query: queryOf("state", d.State), member: "destinations", limit: d.Limit, print: printDestinations,
	})
}

func printDestinations(out io.Writer, destinations []json.RawMessage) error {
	rows, err := readRows[client.Destination](destinations)
	if err != nil {
		return err
	}
	t := newTable(out, "DESTINATION", "STATE", "SINCE", "CALLS", "WAITING", "LATENCY", "LAST ERROR")
	for _, r := range rows {
		latency := ""
		if r.LatencyMs > 0 {
			latency = fmt.Sprintf("%.1f ms", r.LatencyMs)
		}
		t.row(r.Destination, r.State, instant(r.Since), fmt.Sprint(r.Calls), fmt.Sprint(r.Waiting), latency, r.LastError)
	}
	return t.w.Flush()
}
