package ctl

import (
	"carillon/cmd/carillon/terminal"
)

// repeatFields make a timer a series. The node checks them; here they are only spelled.
type repeatFields struct {
	Cron    string `xor:"repeat" placeholder:"'M H DOM MON DOW'" help:"Repeat at these times; needs no other time."`
	Zone    string `placeholder:"Europe/Berlin" help:"Whose clocks, with --cron or --at-local."`
	Every   string `xor:"repeat" placeholder:"1h" help:"Repeat each 1h, from the time or 1h from now."`
	Until   string `placeholder:"TIME" help:"Of a series: no occurrence is due later."`
	Count   *int   `placeholder:"N" help:"Of a series: so many occurrences in all."`
	CatchUp string `placeholder:"one|skip|all" help:"Of a series: what to make up for."`
	Overlap bool   `help:"Of a series: do not wait for the last one's end."`
}

func (r *repeatFields) write(o *object) error {
	if *r == (repeatFields{}) {
		return nil
	}
	if r.Cron == "" && r.Every == "" {
		return terminal.Usagef("--zone, --until, --count, --catch-up and --overlap go with --cron or --every")
	}
	repeat := &object{}
	repeat.text("cron", r.Cron)
	repeat.text("zone", r.Zone)
	repeat.text("every", r.Every)
	repeat.text("until", r.Until)
	if r.Count != nil {
		repeat.set("count", *r.Count)
	}
	repeat.text("catch_up", r.CatchUp)
	if r.Overlap {
		repeat.set("overlap", true)
	}
	o.raw("repeat", repeat.bytes())
	return nil
}
