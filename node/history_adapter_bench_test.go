package node

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"carillon/internal/clocks"
	"carillon/internal/vfs"
	"carillon/ring"
	"carillon/shard/table"
	"carillon/timer"
)

// BenchmarkPast is the cost of the history to the worker for each timer that ended, beside the cost
// of its table (shard BenchmarkHistory): entries of 200 timers of 200 B payload, written to disk
// meanwhile.
func BenchmarkPast(b *testing.B) {
	p := &process{cfg: Config{DataDir: b.TempDir(), HistoryBytes: 1 << 30}, log: slog.New(slog.DiscardHandler), fsys: vfs.OS{}, clock: clocks.NewKeeper(clocks.Config{Source: clocks.NewSystem()})}
	p.timers = p.clock
	h := newHistoryAdapter(p, ring.NewState(nil, nil))
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.run(ctx)
	}()
	const perEntry = 200
	events := make([]table.HistoryEvent, perEntry)
	body := make([]byte, 291)
	for i := range events {
		events[i] = table.HistoryEvent{Item: uint32(i), Topic: 1, State: timer.Done, ID: fmt.Appendf(nil, "order-%012d-reminder-00", i), Body: body}
	}
	index := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		index++
		now := p.clock.WallMs()
		for i := range events {
			events[i].EndMs, events[i].Seq = now, index*perEntry+uint64(i)
		}
		h.Record(1, index, events)
		if index%128 == 0 { // the disk is not measured
			b.StopTimer()
			h.store.Flush()
			b.StartTimer()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(index*perEntry), "ns/timer")
	h.store.Flush()
	if s := h.store.Stats(); s.Recorded > 0 {
		b.ReportMetric(float64(s.Bytes)/float64(s.Recorded), "B/timer")
		b.ReportMetric(float64(s.Dropped), "dropped")
	}
	cancel()
	<-done
}
