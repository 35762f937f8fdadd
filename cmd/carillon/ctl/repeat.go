package ctl

import (
	"carillon/cmd/carillon/terminal"
)

// repeatFields make a timer a series. The node checks them; here they are only spelled.
type repeatFields struct {
	Cron    string `json:"cron,omitempty" xor:"repeat" placeholder:"'M H DOM MON DOW'" help:"Repeat at these times; needs no other time."`
	Zone    string `json:"zone,omitempty" placeholder:"Europe/Berlin" help:"Whose clocks, with --cron or --at-local."`
	Every   string `json:"every,omitempty" xor:"repeat" placeholder:"1h" help:"Repeat each 1h, from the time or 1h from now."`
	Until   string `json:"until,omitempty" placeholder:"TIME" help:"Of a series: no occurrence is due later."`
	Count   *int   `json:"count,omitempty" placeholder:"N" help:"Of a series: how many occurrences in all."`
	CatchUp string `json:"catch_up,omitempty" placeholder:"one|skip|all" help:"Of a series: what to make up for."`
	Overlap bool   `json:"overlap,omitempty" help:"Of a series: do not wait for the last one's end."`
}

func (r *repeatFields) write(o *object) error {
	if *r == (repeatFields{}) {
		return nil
	}
	if r.Cron == "" && r.Every == "" {
		return terminal.Usagef("--zone, --until, --count, --catch-up and --overlap go with --cron or --every")
	}
	o.set("repeat", r)
	return nil
}
