package table

import (
	"math/rand/v2"
	"slices"
	"testing"

	"carillon/timer"
)

// TestForecast compares the counts with the model's timers. It scans in slices.
func TestForecast(t *testing.T) {
	g := newModelHarness(t, rand.New(rand.NewPCG(8, 3)).IntN)
	var times []int64
	for range 2000 { // until enough timers are scheduled
		g.turn()
		times = times[:0]
		for _, x := range g.model.all {
			if x.State == timer.Scheduled {
				times = append(times, x.NextMs)
			}
		}
		if len(times) >= 12 {
			break
		}
	}
	slices.Sort(times)
	n := len(times)
	// some are before the buckets, some after
	from, each := times[n/5], (times[n-2]-times[n/5])/6+1
	for _, topics := range []map[timer.TopicID]bool{nil, {1: true}, {2: true, 9: true}, {}} {
		want := Forecast{FromMs: from, BucketMs: each, Buckets: make([]int64, 6)}
		got := Forecast{FromMs: from, BucketMs: each, Buckets: make([]int64, 6)}
		for _, x := range g.model.all {
			if x.State != timer.Scheduled || topics != nil && !topics[x.Topic] {
				continue
			}
			switch b := (x.NextMs - want.FromMs) / want.BucketMs; {
			case x.NextMs < want.FromMs:
				want.Overdue++
			case b < 6:
				want.Buckets[b]++
			default:
				want.Later++
			}
		}
		for at, done := timer.Handle(0), false; !done; {
			at, done = g.table.Forecast(topics, nil, nil, at, 7, &got)
		}
		if !slices.Equal(got.Buckets, want.Buckets) || got.Overdue != want.Overdue || got.Later != want.Later {
			t.Errorf("topics %v: %+v, want %+v", topics, got, want)
		}
		if topics == nil && (want.Overdue == 0 || want.Later == 0 || slices.Max(want.Buckets) == 0) {
			t.Errorf("%+v tries too little", want)
		}
	}
}
