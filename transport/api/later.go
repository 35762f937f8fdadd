package api

import "slices"

// What the contract names but this version does not do. Values are read and checked like any other; one that asks for
// the missing thing is refused, one that spells out the default is accepted.

func later(name string) *problem {
	return failf(422, badPolicy, "%s comes in a later version", name)
}

var repeatFieldNames = []string{"cron", "zone", "every", "until", "count", "catch_up", "overlap"}

// repeat reads the object of a repeat.
func (r *reader) repeat() {
	var given field
	n := r.open('{', "repeat")
	for ; r.more(n, '}'); n++ {
		name := string(r.key())
		if r.err != nil {
			return
		}
		at := slices.Index(repeatFieldNames, name)
		if at < 0 {
			r.fail(unknown([]byte(name), repeatFieldNames))
			return
		}
		if !r.first(&given, 1<<at, "repeat.", []byte(name)) {
			return
		}
		switch name {
		case "cron", "zone":
			r.text("repeat." + name)
		case "every":
			r.span("repeat.every")
		case "until":
			if _, ok := parseInstant(r.timeText("repeat.until")); !ok {
				r.fail(bad(badTime, "repeat.until: must be an RFC 3339 time with a zone"))
			}
		case "count":
			r.integer("repeat.count")
		case "catch_up":
			r.choice("repeat.catch_up", []string{"skip", "one", "all"})
		case "overlap":
			r.boolean("repeat.overlap")
		}
	}
}
