package hist

import (
	"sync"
	"testing"
)

func TestSummary(t *testing.T) {
	h := New()
	for us := int64(1); us <= 1000; us++ {
		h.Record(us * 1000)
	}
	got := h.Summary()
	within(t, "p50", got.P50, 500)
	within(t, "p90", got.P90, 900)
	within(t, "p99", got.P99, 990)
	within(t, "p999", got.P999, 999)
	if got.Max != 1000 {
		t.Errorf("max = %v, want exactly 1000", got.Max)
	}
}

func TestRecordClamps(t *testing.T) {
	h := New()
	h.Record(-5)
	h.Record(2 * Max)
	if got := h.Summary().Max; got != float64(Max)/1e3 {
		t.Errorf("max = %v ms, want an hour", got)
	}
	if got := h.Summary().P50; got != 0 {
		t.Errorf("p50 = %v, want 0", got)
	}
}

func TestCurveRises(t *testing.T) {
	h := New()
	if h.Curve() != nil {
		t.Error("an empty histogram has a curve")
	}
	for us := int64(1); us < 5000; us++ {
		h.Record(us)
	}
	points := h.Curve()
	for i := 1; i < len(points); i++ {
		if points[i].Fraction < points[i-1].Fraction || points[i].ValueMs < points[i-1].ValueMs {
			t.Fatalf("point %d falls: %v after %v", i, points[i], points[i-1])
		}
	}
	if last := points[len(points)-1]; last.Fraction != 1 || last.ValueMs != 4.999 {
		t.Errorf("last point = %v, want all at 4.999 ms", last)
	}
}

func TestRecorderDrainsEverythingOnce(t *testing.T) {
	r := NewRecorder()
	var writers sync.WaitGroup
	for range 16 {
		writers.Go(func() {
			for i := range int64(1000) {
				r.Record(i)
			}
		})
	}
	writers.Wait()
	total := New()
	r.Drain(total)
	r.Drain(total)
	if total.Count() != 16000 {
		t.Errorf("drained %d values, want 16000", total.Count())
	}
}

func BenchmarkRecorder(b *testing.B) {
	r := NewRecorder()
	b.RunParallel(func(pb *testing.PB) {
		var us int64
		for pb.Next() {
			us += 7
			r.Record(us % 100_000)
		}
	})
}

func within(t *testing.T, name string, got, want float64) {
	t.Helper()
	if got < want*0.998 || got > want*1.002 {
		t.Errorf("%s = %v, want %v", name, got, want)
	}
}
