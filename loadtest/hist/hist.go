// Package hist keeps latency distributions for the load tester and the sink.
//
// A Histogram belongs to one goroutine. A Recorder is written by many, and one
// reader drains it from time to time into a Histogram.
//
// Values are microseconds from 0 to Max, kept with three significant digits;
// larger ones are counted as Max, negative ones as 0.
package hist

import (
	"sync"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Max is the largest value that is kept apart, in microseconds: one hour.
const Max = int64(3600 * 1e6)

const significantDigits = 3

// Summary is a distribution as reports show it, in milliseconds.
type Summary struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Point: a Fraction (0–1) of all values are at most ValueMs.
type Point struct {
	Fraction float64
	ValueMs  float64
}

// Histogram is a distribution of microseconds. It is not safe for concurrent
// use.
type Histogram struct {
	counts *hdrhistogram.Histogram
	max    int64 // exact, while counts rounds
}

// New returns an empty histogram.
func New() *Histogram {
	return &Histogram{counts: hdrhistogram.New(1, Max, significantDigits)}
}

// Record adds one value.
func (h *Histogram) Record(us int64) {
	us = min(max(us, 0), Max)
	h.max = max(h.max, us)
	// Invariant: 0 ≤ us ≤ Max, so the range error cannot occur.
	if err := h.counts.RecordValue(us); err != nil {
		panic("hist: value out of its clamped range: " + err.Error())
	}
}

// Merge adds every value of from.
func (h *Histogram) Merge(from *Histogram) {
	if from.counts.TotalCount() == 0 {
		return
	}
	h.counts.Merge(from.counts)
	h.max = max(h.max, from.max)
}

// Reset forgets every value.
func (h *Histogram) Reset() {
	if h.counts.TotalCount() != 0 {
		h.counts.Reset()
	}
	h.max = 0
}

// Count is the number of values.
func (h *Histogram) Count() int64 { return h.counts.TotalCount() }

// Summary returns the percentiles that every report shows.
func (h *Histogram) Summary() Summary {
	return Summary{
		P50: h.atMs(50), P90: h.atMs(90), P99: h.atMs(99), P999: h.atMs(99.9),
		Max: float64(h.max) / 1e3,
	}
}

// Curve returns the cumulative distribution, rising, closer and closer steps
// towards 1.
func (h *Histogram) Curve() []Point {
	if h.Count() == 0 {
		return nil
	}
	brackets := h.counts.CumulativeDistribution()
	points := make([]Point, 0, len(brackets))
	for _, b := range brackets {
		points = append(points, Point{b.Quantile / 100, float64(min(b.ValueAt, h.max)) / 1e3})
	}
	return points
}

func (h *Histogram) atMs(percentile float64) float64 {
	return float64(min(h.counts.ValueAtPercentile(percentile), h.max)) / 1e3
}

// Recorder is written by many goroutines and drained by one.
type Recorder struct {
	mu sync.Mutex
	h  *Histogram
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder { return &Recorder{h: New()} }

// Record adds one value.
func (r *Recorder) Record(us int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.h.Record(us)
}

// Drain moves everything recorded so far into the given histogram.
func (r *Recorder) Drain(into *Histogram) {
	r.mu.Lock()
	defer r.mu.Unlock()
	into.Merge(r.h)
	r.h.Reset()
}
