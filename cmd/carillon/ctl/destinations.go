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
	Limit int    `default:"100" help:"Limit; 0 is all (${default})."`
}

func (d *destinationsCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.showPages(term, listing{
		path: client.Path("destinations"), query: queryOf("state", d.State), member: "destinations", limit: d.Limit, print: printDestinations,
	})
}

func printDestinations(out io.Writer, destinations []json.RawMessage) error {
	head := []string{"DESTINATION", "STATE", "SINCE", "CALLS", "WAITING", "LATENCY", "LAST ERROR"}
	return printRows(out, destinations, head, func(d *client.Destination) []string {
		latency := ""
		if d.LatencyMs > 0 {
			latency = fmt.Sprintf("%.1f ms", d.LatencyMs)
		}
		return []string{d.Destination, d.State, instant(d.Since), fmt.Sprint(d.Calls), fmt.Sprint(d.Waiting), latency, d.LastError}
	})
}
