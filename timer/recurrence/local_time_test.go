package recurrence

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// occurrences lists the occurrences of a cron expression from an instant on, in local time with its
// offset.
func occurrences(t *testing.T, expression, zone, from string, n int) []string {
	t.Helper()
	start, err := time.Parse(time.RFC3339, from)
	if err != nil {
		t.Fatal(err)
	}
	where, err := Release.Load(zone)
	if err != nil {
		t.Fatal(err)
	}
	var c Calendar
	var out []string
	for ms := start.UnixMilli(); len(out) < n; {
		next := c.cron(expression, zone, ms)
		if next <= ms {
			t.Fatalf("%s in %s: after %s comes %d", expression, zone, time.UnixMilli(ms).In(where), next)
		}
		ms = next
		out = append(out, time.UnixMilli(ms).In(where).Format("01-02T15:04-0700"))
	}
	return out
}

func TestCalendar(t *testing.T) {
	for _, c := range []struct{ expression, zone, from, want string }{
		// Shanghai has no summer time.
		{"0 8 * * 1-5", "Asia/Shanghai", "2027-03-26T00:00:00Z", "03-29T08:00+0800 03-30T08:00+0800 03-31T08:00+0800"},
		{"30 2 * * *", "Asia/Shanghai", "2027-03-27T12:00:00Z", "03-28T02:30+0800 03-29T02:30+0800"},
		// Berlin, 28 March 2027: 02:00 is 03:00. 31 October: 03:00 is 02:00.
		{"30 2 * * *", "Europe/Berlin", "2027-03-27T00:00:00Z", "03-27T02:30+0100 03-28T03:30+0200 03-29T02:30+0200"},
		{"30 2 * * *", "Europe/Berlin", "2027-10-29T12:00:00Z", "10-30T02:30+0200 10-31T02:30+0200 11-01T02:30+0100"},
		{"30 2,3 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", "03-28T03:30+0200 03-29T02:30+0200 03-29T03:30+0200"},
		{"*/30 * * * *", "Europe/Berlin", "2027-03-28T00:00:00Z", "03-28T01:30+0100 03-28T03:00+0200 03-28T03:30+0200 03-28T04:00+0200"},
		{"*/30 * * * *", "Europe/Berlin", "2027-10-30T23:40:00Z", "10-31T02:00+0200 10-31T02:30+0200 10-31T02:00+0100 10-31T02:30+0100 10-31T03:00+0100"},
		{"15 0-23 * * *", "Europe/Berlin", "2027-03-27T23:30:00Z", "03-28T01:15+0100 03-28T03:15+0200 03-28T04:15+0200"},
		{"0 0 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", "03-28T00:00+0100 03-29T00:00+0200 03-30T00:00+0200"},
		{"0 3 * * *", "Europe/Berlin", "2027-03-27T12:00:00Z", "03-28T03:00+0200 03-29T03:00+0200"},
		{"59 23 31 12 *", "Europe/Berlin", "2027-06-01T00:00:00Z", "12-31T23:59+0100 12-31T23:59+0100"},
		// From within the hour after the change: the skipped occurrence is still to come.
		{"30 2 * * *", "Europe/Berlin", "2027-03-28T01:10:00Z", "03-28T03:30+0200 03-29T02:30+0200"},
		// From within the second of two equal hours: the first one was the occurrence.
		{"30 2 * * *", "Europe/Berlin", "2027-10-31T01:10:00Z", "11-01T02:30+0100"},
		// New York, 14 March 2027 and 7 November.
		{"30 2 * * *", "America/New_York", "2027-03-13T12:00:00Z", "03-14T03:30-0400 03-15T02:30-0400"},
		{"30 1 * * *", "America/New_York", "2027-11-06T12:00:00Z", "11-07T01:30-0400 11-08T01:30-0500"},
		{"0 * * * *", "America/New_York", "2027-11-07T04:30:00Z", "11-07T01:00-0400 11-07T01:00-0500 11-07T02:00-0500"},
		{"0 * * * *", "America/New_York", "2027-03-14T05:30:00Z", "03-14T01:00-0500 03-14T03:00-0400 03-14T04:00-0400"},
		// Half an hour, and a midnight that does not exist.
		{"15 2 * * *", "Australia/Lord_Howe", "2027-10-02T00:00:00Z", "10-03T02:45+1100 10-04T02:15+1100"},
		{"0 0 * * *", "Africa/Cairo", "2027-04-28T12:00:00Z", "04-29T00:00+0200 04-30T01:00+0300 05-01T00:00+0300"},
		// A day of the month or a day of the week, as cron has it; leap days.
		{"0 12 13 * 5", "", "2027-08-01T00:00:00Z", "08-06T12:00+0000 08-13T12:00+0000 08-20T12:00+0000"},
		{"0 12 29 2 *", "", "2027-01-01T00:00:00Z", "02-29T12:00+0000 02-29T12:00+0000"},
		{"0 12 * * SUN", "", "2027-08-01T13:00:00Z", "08-08T12:00+0000"},
		{"0 12 * * 7", "", "2027-08-01T13:00:00Z", "08-08T12:00+0000"},
	} {
		want := strings.Fields(c.want)
		if got := occurrences(t, c.expression, c.zone, c.from, len(want)); strings.Join(got, " ") != c.want {
			t.Errorf("%s in %q from %s:\n%s\nwant\n%s", c.expression, c.zone, c.from, strings.Join(got, " "), c.want)
		}
	}
}

// TestCalendarOrder: from any instant, the next occurrence is the one that a walk from long before
// finds.
func TestCalendarOrder(t *testing.T) {
	var c Calendar
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Asia/Shanghai", "Australia/Lord_Howe"} {
		for _, expression := range []string{"*/7 1-3 * * *", "5,50 * * * *", "30 2 * * *", "59 1 * * 0"} {
			for _, day := range []string{"2027-03-14", "2027-03-28", "2027-10-31", "2027-11-07", "2027-10-03"} {
				start, _ := time.Parse(time.DateOnly, day)
				from, end := start.Add(-36*time.Hour).UnixMilli(), start.Add(36*time.Hour).UnixMilli()
				next := c.cron(expression, zone, from)
				for ms := from; ms < end; ms += 13 * 60_000 {
					for next != 0 && next <= ms {
						next = c.cron(expression, zone, next)
					}
					if got := c.cron(expression, zone, ms); got != next {
						t.Fatalf("%s in %s after %s: %s, the walk says %s", expression, zone, time.UnixMilli(ms).UTC(), time.UnixMilli(got).UTC(), time.UnixMilli(next).UTC())
					}
				}
			}
		}
	}
}

// shownMinutes are the instants of each minute that the clock of a zone shows, as if it were UTC, in
// order, and the clock's settings forward.
func shownMinutes(zone *time.Location, from, to time.Time) (instants map[int64][]int64, gaps []span) {
	instants = map[int64][]int64{}
	_, last := from.In(zone).Zone()
	for at := from; at.Before(to); at = at.Add(time.Minute) {
		_, offset := at.In(zone).Zone()
		if offset > last {
			gaps = append(gaps, span{start: at.Unix(), offset: int64(offset), before: int64(last)})
		}
		last = offset
		wall := at.Unix() + int64(offset)
		instants[wall] = append(instants[wall], at.UnixMilli())
	}
	return instants, gaps
}

// everyOccurrence is the reference: it looks at each minute that the clock shows, and at each that
// it skips.
func everyOccurrence(r *rule, instants map[int64][]int64, gaps []span) (list []int64) {
	matches := func(wall int64) bool {
		t := time.Unix(wall, 0).UTC()
		return r.month>>t.Month()&1 == 1 && r.day(t) && r.hour>>t.Hour()&1 == 1 && r.minute>>t.Minute()&1 == 1
	}
	for wall, at := range instants {
		switch {
		case !matches(wall):
		case r.rhythm:
			list = append(list, at...)
		default:
			list = append(list, at[0])
		}
	}
	for _, g := range gaps {
		for wall := g.start + g.before; wall < g.start+g.offset && !r.rhythm; wall += 60 {
			if matches(wall) {
				list = append(list, (wall-g.before)*1000)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// TestCronAgainstEveryMinute: around clock changes and leap days, from any instant.
func TestCronAgainstEveryMinute(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 2))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	zones := []string{"", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Africa/Casablanca", "Asia/Kathmandu", "Antarctica/Troll"}
	if os.Getenv("CARILLON_SOAK") != "" {
		zones = slices.Sorted(maps.Keys(files()))
	}
	for _, name := range zones {
		zone, err := Release.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		days := []time.Time{time.Date(2028, 2, 29, 12, 0, 0, 0, time.UTC), time.Date(2040, 12, 31, 12, 0, 0, 0, time.UTC)}
		for day := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2042; day = day.AddDate(0, 0, 1) {
			_, before := day.In(zone).Zone()
			if _, after := day.AddDate(0, 0, 1).In(zone).Zone(); before != after {
				days = append(days, day)
			}
		}
		for range 5 {
			day := days[r.IntN(len(days))]
			from, to := day.Add(-60*time.Hour), day.Add(84*time.Hour)
			instants, gaps := shownMinutes(zone, from, to)
			for range 8 {
				expression := strings.Join([]string{
					pick("*", "*/7", "0", "30", "59", "15,45", "10-20"), pick("*", "*/2", "0-23", "0", "1", "2", "3", "1-3", "23", "0,2"),
					pick("*", "*", "29", "31", "1-15"), "*", pick("*", "*", "0", "1-5"),
				}, " ")
				rule, err := newRule(expression, name, Release)
				if err != nil {
					t.Fatal(err)
				}
				all := everyOccurrence(rule, instants, gaps)
				end := to.Add(-30 * time.Hour).UnixMilli()
				for range 30 {
					ms := day.UnixMilli() + r.Int64N(36*3_600_000) - 12*3_600_000
					want := int64(0)
					if i, _ := slices.BinarySearch(all, ms+1); i < len(all) && all[i] < end {
						want = all[i]
					}
					got := rule.after(ms)
					if got >= end { // beyond what the reference has seen
						got = 0
					}
					if got != want {
						t.Fatalf("%s in %q after %s: %s, want %s", expression, name, time.UnixMilli(ms).In(zone), time.UnixMilli(got).In(zone), time.UnixMilli(want).In(zone))
					}
				}
			}
		}
	}
}

// TestCronNearAClockChange: a leader computes the next occurrence of each series at its end, also in
// the hours around a clock change.
func TestCronNearAClockChange(t *testing.T) {
	var c Calendar
	cost := func(at string) time.Duration {
		begin, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		least := time.Hour
		for range 50 {
			started := time.Now()
			for ms := begin.UnixMilli(); ms < begin.UnixMilli()+20*60_000; ms += 60_000 {
				c.cron("* * * * *", "Europe/Berlin", ms)
			}
			least = min(least, time.Since(started))
		}
		return least
	}
	if far, near := cost("2027-05-28T00:30:00Z"), cost("2027-03-28T00:30:00Z"); near > 20*far {
		t.Errorf("an occurrence takes %s, near a clock change %s", far/20, near/20)
	}
}

func TestCheckCron(t *testing.T) {
	for _, c := range [][2]string{{"* * * * *", "UTC"}, {"0 8 * * MON-FRI", "Europe/Berlin"}, {"*/5  0-6,22 1 JAN *", ""},
		{"*/60 * * * *", ""}, {"0 */24 * * *", ""}, {"0 0 */31 * *", ""}, {"0 0 1 */12 *", ""}, {"*/999999999 * * * *", ""}, {"05 08 * * fri-sat,sun-mon", ""}, {"5/15 6-22/2 * * 7", ""}, {"5-5 * * * 0-7", ""}} {
		if err := CheckCron(c[0], c[1]); err != nil {
			t.Errorf("%v: %v", c, err)
		}
	}
	for _, c := range [][2]string{
		{"", ""}, {"* * * *", ""}, {"* * * * * *", ""}, {"@hourly", ""}, {"TZ=UTC * * * *", ""}, {"TZ=UTC * * * * *", ""}, {"60 * * * *", ""}, {"* 24 * * *", ""},
		{"* * 0 * *", ""}, {"* * * 13 *", ""}, {"* * L * *", ""}, {"H * * * *", ""}, {"*/0 * * * *", ""}, {"*/ * * * *", ""}, {"/5 * * * *", ""}, {"1, * * * *", ""}, {", * * * *", ""}, {"*-5 * * * *", ""}, {"+5 * * * *", ""}, {"-5 * * * *", ""},
		{"5- * * * *", ""}, {"1-5-7 * * * *", ""}, {"1/2/3 * * * *", ""}, {"*/1000000000 * * * *", ""}, {"? * * * *", ""}, {"* * * * 8", ""}, {"* * * unj *", ""}, {"* * * * monday", ""}, {"* mon * * *", ""}, {"* * * * *", "Local"}, {"* * * * *", "localtime"}, {"* * * * *", "posixrules"}, {"* * * * *", "posix/Europe/Berlin"}, {"* * * * *", "right/Europe/Berlin"},
		{"* * * * *", "/etc/localtime"}, {"* * * * *", "Europe/"}, {"* * * * *", "Europe"}, {"* * * * *", "europe/berlin"}, {"* * * * *", "../etc"}, {"* * * * *", "Mars"},
		{"5-1 * * * *", ""}, {"* 22-6/2 * * *", ""}, {"* * * * fri-mon", ""}, {"* * * dec-jan *", ""},
		{strings.Repeat("1,", 200) + "1 * * * *", ""},
	} {
		if CheckCron(c[0], c[1]) == nil {
			t.Errorf("%v is taken", c)
		}
	}
	if got := FirstCron("0 0 30 2 *", "", 0); got != 0 {
		t.Errorf("30 February is at %d", got)
	}
	if got := FirstCron("1 0 * * *", "", 60_000); got != 60_000 {
		t.Errorf("the instant itself counts; got %d", got)
	}
}

// epochMs is a time in 2027.
const epochMs = int64(1_800_000_000_000)

func BenchmarkCalendar(b *testing.B) {
	for _, zone := range []string{"", "Europe/Berlin"} {
		b.Run(fmt.Sprintf("zone=%q", zone), func(b *testing.B) {
			var c Calendar
			ms := epochMs
			for b.Loop() {
				if ms = c.cron("0 8 * * 1-5", zone, ms); ms > epochMs<<1 {
					ms = epochMs
				}
			}
		})
	}
}
