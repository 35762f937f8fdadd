package api

import (
	"slices"

	"carillon/timer"
	"carillon/timer/recurrence"
)

var windowFieldNames = []string{"zone", "days", "from", "to", "except"}

// window reads the object of a window over one that there may be.
func (r *reader) window(base *timer.Window) *timer.Window {
	w := timer.Window{}
	if base != nil {
		w = *base
	}
	var given field
	n := r.Open('{', "window")
	for ; r.More(n, '}'); n++ {
		name := r.Key()
		if r.Err() != nil {
			return nil
		}
		at := slices.Index(windowFieldNames, string(name))
		if at < 0 {
			r.fail(unknown(name, windowFieldNames))
			return nil
		}
		if !r.first(&given, 1<<at, "window.", name) {
			return nil
		}
		if at == len(windowFieldNames)-1 {
			if !reset(r, &w.Except, nil) {
				w.Except = r.dates()
			}
			continue
		}
		to := [...]*string{&w.Zone, &w.Days, &w.From, &w.To}[at]
		if reset(r, to, "") {
			continue
		}
		if *to = r.Text("window." + windowFieldNames[at]); *to == "" {
			r.fail(r.refuse("window." + windowFieldNames[at] + ": must not be empty"))
		}
	}
	if r.Err() != nil {
		return nil
	}
	if w.Days == "" && w.From == "" && w.To == "" && len(w.Except) == 0 {
		r.fail(r.refuse("window: give days, from, to or except"))
		return nil
	}
	zone, err := recurrence.Release.Load(w.Zone)
	if err != nil {
		r.fail(r.refuse("window.zone: " + err.Error()))
		return nil
	}
	if _, err := recurrence.NewHours(&w, zone); err != nil {
		r.fail(r.refuse(err.Error()))
	}
	return &w
}

func (r *reader) dates() []string {
	var out []string
	n := r.Open('[', "window.except")
	for ; r.More(n, ']'); n++ {
		if n == recurrence.MaxExcept {
			r.fail(r.refuse("window.except: more than 366 dates"))
			return nil
		}
		out = append(out, r.Text("window.except"))
	}
	return out
}

func appendWindow(b []byte, w *timer.Window) []byte {
	o := object{b: b}
	for i, text := range []string{w.Zone, w.Days, w.From, w.To} {
		if text != "" {
			o.str(windowFieldNames[i], text)
		}
	}
	if len(w.Except) > 0 {
		o.texts("except", w.Except)
	}
	return o.end()
}
