package ctl

import "carillon/cmd/carillon/terminal"

// timerFilter selects the timers of a topic that a change is for: all that is given must hold. It
// has no limit of time but --timeout: the node continues when this side has stopped waiting.
type timerFilter struct {
	dryRunFlag
	All bool `help:"All of the topic that have not ended."`
	timerSelection
}

type timerSelection struct {
	State    string   `json:"state,omitempty" placeholder:"STATE" help:"scheduled or leased; else both."`
	DueFrom  string   `json:"due_from,omitempty" placeholder:"TIME" help:"Due at this time or later."`
	DueTo    string   `json:"due_to,omitempty" placeholder:"TIME" help:"Due before this time."`
	Label    []string `json:"label,omitempty" placeholder:"LABEL" help:"With this label; repeat for: with all of these."`
	IDPrefix string   `json:"id_prefix,omitempty" name:"id-prefix" placeholder:"PREFIX" help:"With an id that begins with this."`
}

// dryRunFlag has a change of many counted, and not made.
type dryRunFlag struct {
	DryRun bool `help:"Change nothing; print how many timers would change, and the first of them."`
}

func (f *timerFilter) given() bool {
	return f.All || string(plain(f.timerSelection)) != "{}"
}

func (f *timerFilter) write(o *object) error {
	if !f.given() {
		return terminal.Usagef("which timers? give --label, --id-prefix, --due-from, --due-to, --state, or --all")
	}
	filter := plain(f.timerSelection)
	switch {
	case f.All && string(filter) != "{}":
		return terminal.Usagef("--all and a filter: give one of the two")
	case f.All:
		o.set("all", true)
	default:
		o.raw("filter", filter)
	}
	return nil
}

type rescheduleCmd struct {
	Topic string `arg:"" help:"Topic."`
	timerFilter
	Shift     string `xor:"move" placeholder:"+1h" help:"Later by this, or earlier: --shift=-5m."`
	At        string `xor:"move" placeholder:"TIME" help:"To this time, all of them."`
	AtLocal   string `xor:"move" placeholder:"TIME" help:"To this time by the clocks of --zone."`
	Zone      string `placeholder:"Europe/Berlin" help:"With --at-local: whose clocks."`
	NotBefore string `xor:"move" placeholder:"TIME" help:"Move timers due earlier to this time."`
}

func (r *rescheduleCmd) Run(ctl *Command, term *terminal.Terminal) error {
	if r.Shift == "" && r.At == "" && r.AtLocal == "" && r.NotBefore == "" {
		return terminal.Usagef("to when? give --shift, --at or --not-before")
	}
	o := &object{}
	if err := r.write(o); err != nil {
		return err
	}
	o.text("shift", r.Shift)
	o.text("at", r.At)
	o.text("at_local", r.AtLocal)
	o.text("zone", r.Zone)
	o.text("not_before", r.NotBefore)
	return r.change(ctl, term, "move", o, "topics", r.Topic, "reschedule")
}
