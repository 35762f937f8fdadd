package recurrence

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestCronFaults: errors are in the words of cron, and name what is meant.
func TestCronFaults(t *testing.T) {
	for text, want := range map[string]string{
		"@daily":          `cron: must be five fields: "@daily" is written "0 0 * * *"`,
		"@Hourly":         `cron: must be five fields: "@Hourly" is written "0 * * * *"`,
		"@reboot":         `cron: must be five fields: minute, hour, day of month, month, day of week`,
		"* * * * * *":     `cron: must be five fields: minute, hour, day of month, month, day of week`,
		"60 * * * *":      `cron: minute: 60 is not within 0 to 59`,
		"* a * * *":       `cron: hour: "a" is no number, range or *`,
		"* * L * *":       `cron: day of month: "L" is no number, range or *`,
		"* * * foo *":     `cron: month: "foo" is no number, name, range or *`,
		"* * * * 1-":      `cron: day of week: "" is no number, name, range or *`,
		"*/0 * * * *":     `cron: minute: "*/0": the step must be a number from 1 on`,
		"1-5/x * * * *":   `cron: minute: "1-5/x": the step must be a number from 1 on`,
		"* * * * 1-5-7":   `cron: day of week: "5-7" is no number, name, range or *`,
		"0 0 0 * *":       `cron: day of month: 0 is not within 1 to 31`,
		"TZ=UTC * * * *":  `cron: minute: "TZ=UTC" is no number, range or *`,
		"5-1 * * * *":     `cron: minute: "5-1" ends before it begins; over the end of the field it is written "5-59,0-1"`,
		"* 22-6/2 * * *":  `cron: hour: "22-6/2" ends before it begins; over the end of the field it is written "22-23,0-6"`,
		"* * * * fri-mon": `cron: day of week: "fri-mon" ends before it begins; over the end of the field it is written "fri-sat,sun-mon"`,
		"* * * * sat-sun": `cron: day of week: "sat-sun" ends before it begins; over the end of the field it is written "sat,sun"`,
		"* * * * 6-1":     `cron: day of week: "6-1" ends before it begins; over the end of the field it is written "6,0-1"`,
		"* * * dec-1 *":   `cron: month: "dec-1" ends before it begins; over the end of the field it is written "dec,1"`,
	} {
		if err := CheckCron(text, ""); err == nil || err.Error() != want {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

// vixie is Vixie's cron as its load_entry and find_jobs have it: sets of values, two flags, and one
// look at each minute.
type vixie struct {
	minute, hour, dom, month, dow map[int]bool
	domStar, dowStar              bool
}

func vixieEntry(fields []string) *vixie {
	list := func(text string, low, high int) map[int]bool {
		set := map[int]bool{}
		for _, part := range strings.Split(text, ",") {
			from, to, step := low, high, 1
			if i := strings.Index(part, "/"); i >= 0 {
				step, _ = strconv.Atoi(part[i+1:])
				part = part[:i]
			}
			if part != "*" {
				if i := strings.Index(part, "-"); i >= 0 {
					from, _ = strconv.Atoi(part[:i])
					to, _ = strconv.Atoi(part[i+1:])
				} else {
					from, _ = strconv.Atoi(part)
					to = from
				}
			}
			for v := from; v <= to; v += step {
				set[v] = true
			}
		}
		return set
	}
	e := &vixie{
		list(fields[0], 0, 59), list(fields[1], 0, 23), list(fields[2], 1, 31), list(fields[3], 1, 12), list(fields[4], 0, 7),
		fields[2][0] == '*', fields[4][0] == '*',
	}
	if e.dow[0] || e.dow[7] {
		e.dow[0], e.dow[7] = true, true
	}
	return e
}

func (v *vixie) runs(t time.Time) bool {
	if !v.minute[t.Minute()] || !v.hour[t.Hour()] || !v.month[int(t.Month())] {
		return false
	}
	dom, dow := v.dom[t.Day()], v.dow[int(t.Weekday())]
	if v.domStar || v.dowStar {
		return dom && dow
	}
	return dom || dow
}

// TestLikeVixie: drawn expressions have the occurrences that Vixie's cron finds minute by minute.
func TestLikeVixie(t *testing.T) {
	rng := rand.New(rand.NewPCG(28, 10))
	field := func(low, high int) string {
		var parts []string
		for range 1 + rng.IntN(4)/3 {
			from := low + rng.IntN(high-low+1)
			part := [...]string{"*", "*", strconv.Itoa(from), fmt.Sprintf("%d-%d", from, from+rng.IntN(high-from+1))}[rng.IntN(4)]
			if (part == "*" || strings.Contains(part, "-")) && rng.IntN(2) == 0 {
				part += "/" + strconv.Itoa(1+rng.IntN(2*(high-low)))
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, ",")
	}
	expressions := []string{"0 0 */2 * 3", "0 0 1,*/2 * 3", "0 0 */2 * */3", "0 0 13 * 5", "0 0 13 * *", "*/60 * * * *", "0 */24 * * *", "0 0 */31 * *", "0 0 1 */12 *", "0 0 * * 7", "0 0 * * 5-7"}
	for range 300 {
		expressions = append(expressions, strings.Join([]string{field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)}, " "))
	}
	found := 0
	for _, text := range expressions {
		ours, err := parseExpression(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		theirs := vixieEntry(strings.Fields(text))
		at := time.Date(2027, time.Month(1+rng.IntN(12)), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60), 0, time.UTC)
		next := ours.next(at)
		for minute := at.Truncate(time.Minute).Add(time.Minute); minute.Before(at.AddDate(0, 0, 45)); minute = minute.Add(time.Minute) {
			if runs := theirs.runs(minute); runs != next.Equal(minute) {
				t.Errorf("%s at %s: Vixie's runs: %v; next is %s", text, minute, runs, next)
				break
			}
			if next.Equal(minute) {
				next = ours.next(minute)
				found++
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d occurrences were compared", found)
	}
}

// FuzzCron: any text is taken or refused in the words of cron, and what is taken ends its search.
func FuzzCron(f *testing.F) {
	for _, s := range []string{"* * * * *", "*/60 */24 */31 */12 *", "0 0 29 2 */6", "1 1 1 1 fri-mon", "1,, * * * *", "@daily", "5/15 22-6/2 * jan-mar sun"} {
		f.Add(s, int64(1_800_000_000_000))
	}
	f.Fuzz(func(t *testing.T, text string, ms int64) {
		e, err := parseExpression(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "cron: ") || strings.Contains(err.Error(), "strconv") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		at := time.UnixMilli(ms % 253_402_300_800_000).UTC()
		if next := e.next(at); !next.IsZero() && (!next.After(at) || !e.next(next.Add(-time.Minute)).Equal(next)) {
			t.Fatalf("%q after %s: %s", text, at, next)
		}
	})
}
