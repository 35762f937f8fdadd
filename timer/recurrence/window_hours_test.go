package recurrence

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/timer"
)

func hours(t testing.TB, w timer.Window) *Hours {
	t.Helper()
	zone, err := Release.Load(w.Zone)
	if err != nil {
		t.Fatal(err)
	}
	h, err := NewHours(&w, zone)
	if err != nil {
		t.Fatalf("%+v: %v", w, err)
	}
	return h
}

// openAt is the reference: it reads the clock on the wall of one instant, by the library's own
// calendar, and looks through the texts of the window.
func openAt(w *timer.Window, zone *time.Location, ms int64) bool {
	local := time.UnixMilli(ms).In(zone)
	clock := local.Format("15:04")
	opens := func(day time.Time) bool {
		if slices.Contains(w.Except, day.Format(time.DateOnly)) {
			return false
		}
		name := strings.ToLower(day.Format("Mon"))
		for part := range strings.SplitSeq(w.Days, ",") {
			first, last, _ := strings.Cut(part, "-")
			week := strings.Repeat("sun mon tue wed thu fri sat ", 2)
			if last == "" {
				last = first
			}
			from := strings.Index(week, first)
			to := from + strings.Index(week[from:], last)
			if strings.Contains(week[from:to+3], name) {
				return true
			}
		}
		return w.Days == ""
	}
	from, to := w.From, w.To
	if from == "" {
		from = "00:00"
	}
	if to == "" {
		to = "24:00"
	}
	if from < to {
		return opens(local) && from <= clock && clock < to
	}
	date := time.Date(local.Year(), local.Month(), local.Day(), 12, 0, 0, 0, time.UTC)
	return opens(local) && from <= clock || opens(date.AddDate(0, 0, -1)) && clock < to
}

// TestHoursAgainstEveryMinute walks some days around clock changes minute by minute.
func TestHoursAgainstEveryMinute(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	zones := []string{"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kathmandu", "Pacific/Apia"}
	changes := []string{"2027-03-28", "2027-10-31", "2027-03-14", "2027-11-07", "2027-10-03", "2027-04-04", "2027-04-30", "2027-07-01", "2011-12-30"}
	for range 100 {
		w := timer.Window{
			Zone: pick(zones...), Days: pick("", "mon-fri", "fri-mon", "mon,wed", "sun", "sat-sun,tue", "sun-sat"),
			From: pick("", "00:00", "02:10", "02:30", "08:00", "22:00", "23:59"), To: pick("", "24:00", "02:15", "02:50", "03:00", "20:00", "00:01"),
		}
		if w.From == w.To && w.From != "" {
			continue
		}
		start, _ := time.Parse(time.DateOnly, changes[r.IntN(len(changes))])
		for _, day := range r.Perm(4)[:r.IntN(3)] {
			w.Except = append(w.Except, start.AddDate(0, 0, day-1).Format(time.DateOnly))
		}
		h := hours(t, w)
		from, end := start.Add(-48*time.Hour).UnixMilli(), start.Add(60*time.Hour).UnixMilli()
		stays := int64(0) // until when it is said to stay as it is
		for ms, was := from, false; ms < end; ms += 60_000 {
			want := openAt(&w, h.zone, ms)
			if ms > from && ms < stays && want != was {
				t.Fatalf("%+v: it changes at %s, was to stay as it is until %s", w, time.UnixMilli(ms).In(h.zone), time.UnixMilli(stays).In(h.zone))
			}
			got, until := h.Open(ms + r.Int64N(60_000))
			if got != want || until <= ms {
				t.Fatalf("%+v at %s: open is %t until %s", w, time.UnixMilli(ms).In(h.zone), got, time.UnixMilli(until).In(h.zone))
			}
			if until < end && until-ms < 7*86_400_000 && openAt(&w, h.zone, until) == want && until < from+5*86_400_000 {
				t.Fatalf("%+v: at %s it does not change", w, time.UnixMilli(until).In(h.zone))
			}
			was, stays = want, until
		}
	}
}

// TestHoursGoOn: from change to change there is always a next one, for many years.
func TestHoursGoOn(t *testing.T) {
	w := timer.Window{Zone: "Europe/Berlin", From: "08:00", To: "20:00"}
	h, changes := hours(t, w), 0
	ms := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC).UnixMilli()
	end := time.Date(2056, 11, 26, 12, 0, 0, 0, time.UTC).UnixMilli()
	for want := true; ms < end; want = !want {
		open, until := h.Open(ms)
		if open != want || until <= ms {
			t.Fatalf("after %d changes, at %s: open is %t until %s", changes, time.UnixMilli(ms).UTC(), open, time.UnixMilli(until).UTC())
		}
		ms, changes = until, changes+1
	}
	if days := 30*365 + 8; changes < 2*days || changes > 2*days+2 {
		t.Errorf("%d changes in %d days", changes, days)
	}
}

func TestHoursByHand(t *testing.T) {
	for _, c := range []struct {
		w                timer.Window
		at, until, state string
	}{
		{timer.Window{Days: "mon-fri", From: "08:00", To: "20:00"}, "2026-11-26T09:00:00Z", "2026-11-26T20:00:00Z", "open"},
		{timer.Window{Days: "mon-fri", From: "08:00", To: "20:00"}, "2026-11-27T20:00:00Z", "2026-11-30T08:00:00Z", "shut"},
		{timer.Window{Days: "mon-fri", From: "08:00", To: "20:00"}, "2026-11-27T19:59:59.999Z", "2026-11-27T20:00:00Z", "open"},
		{timer.Window{Days: "mon-fri", From: "08:00", To: "20:00", Except: []string{"2026-11-30"}}, "2026-11-27T21:00:00Z", "2026-12-01T08:00:00Z", "shut"},
		// Friday night belongs to Friday, though Saturday is not a day of it, and is left out.
		{timer.Window{Days: "fri", From: "22:00", To: "06:00", Except: []string{"2026-11-28"}}, "2026-11-28T01:00:00Z", "2026-11-28T06:00:00Z", "open"},
		{timer.Window{Days: "sat", From: "22:00", To: "06:00"}, "2026-11-28T01:00:00Z", "2026-11-28T22:00:00Z", "shut"},
		{timer.Window{From: "22:00", To: "00:00"}, "2026-11-28T23:00:00Z", "2026-11-29T00:00:00Z", "open"},
		{timer.Window{Days: "mon,tue"}, "2026-11-30T12:00:00Z", "2026-12-02T00:00:00Z", "open"},
		// Berlin: 02:00 is 03:00, then 03:00 is 02:00.
		{timer.Window{Zone: "Europe/Berlin", From: "02:30", To: "08:00"}, "2027-03-28T00:59:00Z", "2027-03-28T01:00:00Z", "shut"},
		{timer.Window{Zone: "Europe/Berlin", From: "02:30", To: "08:00"}, "2027-03-28T01:00:00Z", "2027-03-28T06:00:00Z", "open"},
		{timer.Window{Zone: "Europe/Berlin", From: "02:10", To: "02:50"}, "2027-03-27T12:00:00Z", "2027-03-29T00:10:00Z", "shut"},
		{timer.Window{Zone: "Europe/Berlin", From: "02:10", To: "02:50"}, "2027-10-31T00:20:00Z", "2027-10-31T00:50:00Z", "open"},
		{timer.Window{Zone: "Europe/Berlin", From: "02:10", To: "02:50"}, "2027-10-31T00:50:00Z", "2027-10-31T01:10:00Z", "shut"},
	} {
		at, _ := time.Parse(time.RFC3339, c.at)
		open, until := hours(t, c.w).Open(at.UnixMilli())
		if got := time.UnixMilli(until).UTC().Format(time.RFC3339); got != c.until || open != (c.state == "open") {
			t.Errorf("%+v at %s: open is %t until %s, want %s until %s", c.w, c.at, open, got, c.state, c.until)
		}
	}
}

// TestHoursStaysBounded: the answer is cheap however many dates are left out, and of a window that
// never shuts it is later than the question.
func TestHoursStaysBounded(t *testing.T) {
	w := timer.Window{Days: "thu"}
	day := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	for i := range MaxExcept {
		w.Except = append(w.Except, day.AddDate(0, 0, 7*i).Format(time.DateOnly))
	}
	open, until := hours(t, w).Open(day.UnixMilli())
	if want := day.AddDate(0, 0, 7*MaxExcept); open || until != want.UnixMilli() {
		t.Errorf("open is %t until %s, want shut until %s", open, time.UnixMilli(until).UTC(), want)
	}
	if open, until := hours(t, timer.Window{}).Open(day.UnixMilli()); !open || until <= day.UnixMilli() {
		t.Errorf("always open: %t until %d", open, until)
	}
}

func TestHoursRefused(t *testing.T) {
	for _, c := range []struct {
		w    timer.Window
		want string
	}{
		{timer.Window{Days: "mo"}, "window.days: must be days of"}, {timer.Window{Days: "Mon"}, "window.days: must be days of"}, {timer.Window{Days: "mon-"}, "window.days: must be"},
		{timer.Window{Days: "mon-mon"}, "window.days: must be"}, {timer.Window{Days: "mon, tue"}, "window.days: must be"}, {timer.Window{Days: "mon-wed,tue"}, "window.days: tue is given twice"},
		{timer.Window{From: "8:00"}, "window.from: must be"}, {timer.Window{From: "24:00"}, "window.from: must be"}, {timer.Window{From: "12:60"}, "window.from: must be"},
		{timer.Window{To: "24:01"}, "window.to: must be"}, {timer.Window{To: "20"}, "window.to: must be"}, {timer.Window{From: "08:00", To: "08:00"}, "window: from and to are the same"},
		{timer.Window{Except: []string{"2026-02-30"}}, "window.except: each must be"}, {timer.Window{Except: []string{"25.12.2026"}}, "window.except: each must be"},
		{timer.Window{Except: []string{"2026-12-25", "2026-12-25"}}, "window.except: a date is given twice"}, {timer.Window{Except: make([]string, MaxExcept+1)}, "window.except: more than 366"},
	} {
		if _, err := NewHours(&c.w, time.UTC); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.w, err, c.want)
		}
	}
}

func BenchmarkHours(b *testing.B) {
	h := hours(b, timer.Window{Zone: "Europe/Berlin", Days: "mon-fri", From: "08:00", To: "20:00"})
	ms := epochMs
	for b.Loop() {
		if _, ms = h.Open(ms); ms > epochMs<<1 {
			ms = epochMs
		}
	}
}
