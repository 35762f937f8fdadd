package api

import (
	"time"

	"carillon/timer/recurrence"
)

// resolve replaces a local time by its instant. given are the fields that the document has.
func (w *when) resolve(given field) *problem {
	switch {
	case given&(fAtLocal|fZone) == 0:
		return nil
	case given&fAtLocal == 0:
		return bad(badTime, "zone: goes with at_local; the zone of a series is repeat.zone")
	case given&fZone == 0:
		return bad(badTime, `at_local: needs a zone, like "zone": "Europe/Berlin"`)
	}
	zone, err := recurrence.Release.Load(w.zone)
	if err != nil {
		return badf(badTime, "zone: %v", err)
	}
	w.ms = recurrence.Local(time.UnixMilli(w.ms).UTC(), zone).UnixMilli()
	if w.ms < 0 {
		return bad(badTime, "at_local: must be from 1970 on")
	}
	return nil
}

// zone reads the name of a time zone.
func (r *reader) zone(name, code string) string {
	zone := r.Text(name)
	if zone == "" {
		r.fail(badf(code, `%s: must be a name of the IANA data base, like "Europe/Berlin"`, name))
	}
	return zone
}
