package loadtest

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"carillon/loadtest/hist"
)

func TestChartsStayInsideTheirFrame(t *testing.T) {
	h := hist.New()
	for us := int64(1); us < 100_000; us += 7 {
		h.Record(us)
	}
	busy := Report{latencyCurve: h.Curve(), latenessCurve: h.Curve(), series: []second{
		{at: 1, ops: 52_000, fired: 3, latency: h.Summary(), lateness: h.Summary()}, {at: 2, ops: 0.5}, {at: 3, ops: 99_999}}}
	one := Report{latencyCurve: h.Curve()[:1], series: []second{{at: 0.2, ops: 7, latency: h.Summary()}}}
	coordinate := regexp.MustCompile(`[ML](-?[0-9.]+) (-?[0-9.]+)`)
	for _, r := range []Report{{}, one, busy} {
		for _, c := range []chart{percentileChart(r), rateChart(r), delayChart(r)} {
			svg := string(c.svg())
			if err := wellFormed(svg); err != nil {
				t.Fatalf("%v:\n%s", err, svg)
			}
			if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
				t.Errorf("not a number in %s", svg)
			}
			for _, at := range coordinate.FindAllStringSubmatch(svg, -1) {
				x, _ := strconv.ParseFloat(at[1], 64)
				y, _ := strconv.ParseFloat(at[2], 64)
				if x < 0 || x > chartWidth || y < 0 || y > chartHeight {
					t.Errorf("point %s is outside", at[0])
				}
			}
		}
	}
}

// Times stand at round numbers, and the axis holds all of them.
func TestTimeTicks(t *testing.T) {
	for end, want := range map[float64]string{
		1: "0 s 0.2 s 0.4 s 0.6 s 0.8 s 1 s", 13.13: "0 s 2 s 4 s 6 s 8 s 10 s 12 s 14 s", 30: "0 s 5 s 10 s 15 s 20 s 25 s 30 s",
		30.4: "0 s 5 s 10 s 15 s 20 s 25 s 30 s 35 s", 99: "0 s 10 s 20 s 30 s 40 s 50 s 60 s 70 s 80 s 90 s 100 s", 3600: "0 s 500 s 1000 s 1500 s 2000 s 2500 s 3000 s 3500 s 4000 s",
	} {
		var got []string
		for _, x := range timeTicks(end) {
			got = append(got, x.text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%v: %v, want %s", end, got, want)
		}
	}
}

func wellFormed(text string) error {
	decoder := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestCount(t *testing.T) {
	for in, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567.6: "1,234,568"} {
		if got := count(in); got != want {
			t.Errorf("count(%v) = %s, want %s", in, got, want)
		}
	}
}

func TestProgressLine(t *testing.T) {
	var b strings.Builder
	writeProgress(&b, Progress{Elapsed: 2500e6, Rate: 41234, InFlight: 64, Due: 10, Fired: 9, Errors: 1}, "\n")
	if want := "   2.5s  41,234/s  in flight 64  due 10  fired 9  errors 1\n"; b.String() != want {
		t.Errorf("line = %q, want %q", b.String(), want)
	}
}

func TestDueBins(t *testing.T) {
	var d dueBins
	d.baseMs = 1000
	for _, dueMs := range []int64{0, 1000, 1150, 99_999_999_999} {
		d.move(dueMs, 1)
	}
	for _, c := range []struct{ untilMs, want int64 }{{900, 0}, {1100, 2}, {1200, 3}, {99_999_999_999, 3}} {
		if got := d.until(c.untilMs); got != c.want {
			t.Errorf("until %d = %d, want %d", c.untilMs, got, c.want)
		}
	}
}
