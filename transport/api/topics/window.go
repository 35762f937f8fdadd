package topics

import (
	"carillon/timer"
	"carillon/timer/recurrence"
	"carillon/transport/api/web"
)

var WindowFieldNames = []string{"zone", "days", "from", "to", "except"}

func readWindow(r *web.Reader, base *timer.Window) *timer.Window {
	w := timer.Window{}
	if base != nil {
		w = *base
	}
	r.Object("window", WindowFieldNames, func(i int) {
		if i == len(WindowFieldNames)-1 {
			if !reset(r, &w.Except, nil) {
				w.Except = readDates(r)
			}
			return
		}
		to := [...]*string{&w.Zone, &w.Days, &w.From, &w.To}[i]
		if reset(r, to, "") {
			return
		}
		if *to = r.Text("window." + WindowFieldNames[i]); *to == "" {
			r.Reject(r.OutOfRange("window." + WindowFieldNames[i] + ": must not be empty"))
		}
	})
	if r.Err() != nil {
		return nil
	}
	if w.Days == "" && w.From == "" && w.To == "" && len(w.Except) == 0 {
		r.Reject(r.OutOfRange("window: give days, from, to or except"))
		return nil
	}
	zone, err := recurrence.Release.Load(w.Zone)
	if err != nil {
		r.Reject(r.OutOfRange("window.zone: " + err.Error()))
		return nil
	}
	if _, err := recurrence.NewHours(&w, zone); err != nil {
		r.Reject(r.OutOfRange(err.Error()))
	}
	return &w
}

func readDates(r *web.Reader) []string {
	return r.Texts("window.except", func(n int, _ string) *web.Problem {
		if n < recurrence.MaxExcept {
			return nil
		}
		return r.OutOfRange("window.except: more than 366 dates")
	})
}

func windowMembers(o *web.Object, w *timer.Window) {
	for i, text := range []string{w.Zone, w.Days, w.From, w.To} {
		o.OptText(WindowFieldNames[i], text)
	}
	o.OptTexts("except", w.Except)
}
