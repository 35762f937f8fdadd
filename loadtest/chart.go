package loadtest

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"

	"carillon/loadtest/hist"
)

// Size of a chart in its own units, and the room for its labels.
const (
	chartWidth, chartHeight                     = 900.0, 300.0
	marginLeft, marginRight, marginTop, marginX = 80.0, 34.0, 26.0, 34.0
)

type xy struct{ x, y float64 }

type line struct {
	name   string
	points []xy
}

type tick struct {
	at   float64
	text string
}

// chart draws lines over a linear x axis; y may be logarithmic.
type chart struct {
	label string // the quantity of the y axis
	logY  bool
	xs    []tick // the first and last span the axis
	lines []line
}

// percentileChart has percentiles on x, each further nine as wide as the last,
// as HdrHistogram plots have.
func percentileChart(r Report) chart {
	c := chart{label: "ms", logY: true}
	for i, text := range []string{"0", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"} {
		c.xs = append(c.xs, tick{float64(i), text})
	}
	for _, curve := range []struct {
		name   string
		points []hist.Point
	}{{"latency", r.latencyCurve}, {"lateness", r.latenessCurve}} {
		l := line{name: curve.name}
		for _, p := range curve.points {
			l.points = append(l.points, xy{min(-math.Log10(max(1-p.Fraction, 1e-5)), 5), p.ValueMs})
		}
		c.lines = append(c.lines, l)
	}
	return c
}

func rateChart(r Report) chart {
	return timeChart(r, "per second", false, []string{"operations", "fired"}, func(s second) []float64 {
		return []float64{s.ops, s.fired}
	})
}

func delayChart(r Report) chart {
	return timeChart(r, "ms", true, []string{"latency p50", "lateness p50", "latency p99", "lateness p99"}, func(s second) []float64 {
		return []float64{s.latency.P50, s.lateness.P50, s.latency.P99, s.lateness.P99}
	})
}

func timeChart(r Report, label string, logY bool, names []string, values func(second) []float64) chart {
	c := chart{label: label, logY: logY}
	end := 1.0
	for _, s := range r.series {
		end = max(end, s.at)
	}
	c.xs = timeTicks(end)
	for i, name := range names {
		l := line{name: name}
		for _, s := range r.series {
			if y := values(s)[i]; y > 0 || !logY {
				l.points = append(l.points, xy{s.at, y})
			}
		}
		c.lines = append(c.lines, l)
	}
	return c
}

// timeTicks are at round times, five to eleven of them, the last at the end or after it.
func timeTicks(end float64) (ticks []tick) {
	step := math.Pow(10, math.Floor(math.Log10(end)))
	switch {
	case end/step <= 2:
		step /= 5
	case end/step <= 5:
		step /= 2
	}
	for i := 0; ; i++ {
		at := float64(i) * step
		ticks = append(ticks, tick{at, strconv.FormatFloat(at, 'g', 6, 64) + " s"})
		if at >= end*(1-1e-9) {
			return ticks
		}
	}
}

// svg draws the chart. Colours and dashes come from the page's style sheet.
func (c chart) svg() template.HTML {
	var b strings.Builder
	low, high, ys := c.scale()
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img"><text x="4" y="14">%s</text>`, chartWidth, chartHeight, c.label)
	x0, x1 := c.xs[0].at, c.xs[len(c.xs)-1].at
	px := func(x float64) float64 { return marginLeft + (x-x0)/(x1-x0)*(chartWidth-marginLeft-marginRight) }
	py := func(y float64) float64 {
		if c.logY {
			y = math.Log10(max(y, math.Pow(10, low)))
		}
		return chartHeight - marginX - (y-low)/(high-low)*(chartHeight-marginTop-marginX)
	}
	for _, t := range ys {
		y := py(t.at)
		fmt.Fprintf(&b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`,
			marginLeft, chartWidth-marginRight, y, y, marginLeft-8, y+4, t.text)
	}
	for _, t := range c.xs {
		x := px(t.at)
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/><text x="%.1f" y="%g" text-anchor="middle">%s</text>`,
			x, x, marginTop, chartHeight-marginX, x, chartHeight-marginX+18, t.text)
	}
	legend := marginLeft
	for i, l := range c.lines {
		if len(l.points) == 0 {
			continue
		}
		fmt.Fprintf(&b, `<path class="s%d" d="M%g 10h24"/><text x="%g" y="14">%s</text>`, i, legend, legend+30, l.name)
		legend += 150
		fmt.Fprintf(&b, `<path class="s%d" d="`, i)
		for at, p := range l.points {
			fmt.Fprintf(&b, "%c%.1f %.1f", "ML"[min(at, 1)], px(p.x), py(p.y))
		}
		if len(l.points) == 1 {
			b.WriteString("h0") // a dot, by the round ends of the stroke
		}
		b.WriteString(`"/>`)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// scale chooses the y axis: whole powers of ten if logarithmic (low and high
// are then exponents), else from 0 to a round number.
func (c chart) scale() (low, high float64, ticks []tick) {
	least, most := math.Inf(1), 0.0
	for _, l := range c.lines {
		for _, p := range l.points {
			most = max(most, p.y)
			if p.y > 0 {
				least = min(least, p.y)
			}
		}
	}
	if most == 0 {
		least, most = 1, 1
	}
	if c.logY {
		low, high = math.Floor(math.Log10(least)), math.Ceil(math.Log10(most))
		high = max(high, low+1)
		for e := low; e <= high; e++ {
			ticks = append(ticks, tick{math.Pow(10, e), fmt.Sprintf("%g", math.Pow(10, e))})
		}
		return low, high, ticks
	}
	step := math.Pow(10, math.Floor(math.Log10(most)))
	if most/step < 2 {
		step /= 5
	} else if most/step < 5 {
		step /= 2
	}
	high = math.Ceil(most/step) * step
	for y := 0.0; y <= high+step/2; y += step {
		ticks = append(ticks, tick{y, count(y)})
	}
	return 0, high, ticks
}
