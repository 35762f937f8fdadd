package table

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"carillon/timer"
)

const (
	benchTimers = 1_000_000
	benchBatch  = 200
	benchNow    = int64(1_700_000_000_000)
)

func benchID(n int) string { return fmt.Sprintf("order-%012d-reminder-00", n) } // 30 bytes

// fillTable makes a table of n timers with payloads of 200 B, due over the next day.
func fillTable(tb testing.TB, n int) *Table {
	tb.Helper()
	t := New(1, benchNow)
	payload := bytes.Repeat([]byte("x"), 200)
	var b Batch
	var results []timer.Result
	for i := 0; i < n; {
		b.Reset(benchNow, 1, uint64(i))
		for end := min(i+benchBatch, n); i < end; i++ {
			copy(payload[170:], benchID(i))
			b.Command(&timer.Command{
				Kind: timer.Add, Topic: 1, ID: benchID(i), Tag: uint32(i), Content: uint64(i) * 7919,
				Spec: &timer.Spec{DueMs: benchNow + int64(i)*86, Payload: payload, PayloadKind: timer.JSONPayload},
			})
		}
		var err error
		if results, err = t.Apply(b.Bytes(), nil, results[:0]); err != nil {
			tb.Fatal(err)
		}
	}
	return t
}

// TestMemoryPerTimer checks the memory target: at most 96 bytes plus 1.1 times the payload, all
// included.
func TestMemoryPerTimer(t *testing.T) {
	n := benchTimers
	if os.Getenv("CARILLON_SOAK") == "" {
		n /= 10
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // the first collection leaves the content of pools
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	table := fillTable(t, n)
	used := float64(heap()-before) / float64(n)
	own := float64(table.MemoryBytes()) / float64(n)
	t.Logf("%d timers of 200 B payload and %d B id: heap %.1f B/timer, MemoryBytes %.1f B/timer", n, len(benchID(1)), used, own)
	if limit := 96 + 1.1*200; used > limit {
		t.Errorf("a timer takes %.1f B, at most %.1f are allowed", used, limit)
	}
	if own < used*0.98 || own > used*1.05 {
		t.Errorf("MemoryBytes says %.1f B per timer, the heap has %.1f", own, used)
	}
	runtime.KeepAlive(table)
}

// benchApply measures Apply alone. fill builds one batch for the given operation numbers.
func benchApply(b *testing.B, t *Table, perOp int, fill func(batch *Batch, from, n int)) {
	var batch Batch
	var results []timer.Result
	done := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		batch.Reset(benchNow, 1, 1)
		fill(&batch, done, benchBatch)
		b.StartTimer()
		var err error
		if results, err = t.Apply(batch.Bytes(), nil, results[:0]); err != nil {
			b.Fatal(err)
		}
		if results[0].Code == timer.Skipped || results[0].Code == timer.NotFound {
			b.Fatalf("code %d", results[0].Code)
		}
		done += benchBatch
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done*perOp), "ns/timer")
}

func BenchmarkApply(b *testing.B) {
	payload := bytes.Repeat([]byte("x"), 200)
	random := rand.New(rand.NewPCG(1, 1))
	b.Run("add", func(b *testing.B) {
		t := fillTable(b, benchTimers)
		benchApply(b, t, 1, func(batch *Batch, from, n int) {
			for i := from; i < from+n; i++ {
				batch.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: benchID(benchTimers + i), Content: uint64(i),
					Spec: &timer.Spec{DueMs: benchNow + random.Int64N(86_400_000), Payload: payload, PayloadKind: timer.JSONPayload}})
			}
		})
	})
	b.Run("cancel and add again", func(b *testing.B) {
		t := fillTable(b, benchTimers)
		benchApply(b, t, 1, func(batch *Batch, from, n int) {
			for range n / 2 {
				id := benchID(random.IntN(benchTimers))
				batch.Command(&timer.Command{Kind: timer.Cancel, Topic: 1, ID: id})
				batch.Command(&timer.Command{Kind: timer.Add, Topic: 1, ID: id, Content: uint64(from),
					Spec: &timer.Spec{DueMs: benchNow + random.Int64N(86_400_000), Payload: payload, PayloadKind: timer.JSONPayload}})
			}
		})
	})
	b.Run("modify", func(b *testing.B) {
		t := fillTable(b, benchTimers)
		benchApply(b, t, 1, func(batch *Batch, from, n int) {
			for range n {
				batch.Command(&timer.Command{Kind: timer.Modify, Topic: 1, ID: benchID(random.IntN(benchTimers)),
					Patch: &timer.Patch{Due: true, Spec: timer.Spec{DueMs: benchNow + random.Int64N(86_400_000)}}})
			}
		})
	})
	b.Run("lease and ack", func(b *testing.B) {
		t := fillTable(b, benchTimers)
		fence, next := uint64(0), timer.Handle(0)
		benchApply(b, t, 1, func(batch *Batch, from, n int) {
			if int(next)+n > benchTimers { // all are done
				*t = *fillTable(b, benchTimers)
				fence, next = 0, 0
			}
			for range n {
				next++
				batch.Lease(15_000, next, uint64(next), 1)
			}
			for h := next - timer.Handle(n) + 1; h <= next; h++ {
				fence++
				batch.Outcome(&Outcome{Kind: Ack, Handle: h, Seq: uint64(h), Fence: fence, StartedMs: benchNow, EndedMs: benchNow + 3, Status: 200})
			}
		})
	})
}

// BenchmarkScan is what a timer costs a page of 22 by a prefix.
func BenchmarkScan(b *testing.B) {
	q := timer.Query{Topic: 1, States: 1 << timer.Scheduled, IDPrefix: "order-", Limit: 22}
	part := &Part{Table: fillTable(b, benchTimers), Query: &q}
	for b.Loop() {
		var top TopK
		if _, done := top.Scan(part, 0, 2*benchTimers); !done {
			b.Fatal("not scanned to the end")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchTimers, "ns/timer")
}

func BenchmarkSnapshot(b *testing.B) {
	t := fillTable(b, benchTimers)
	image := image(t)
	b.Run("save", func(b *testing.B) {
		b.SetBytes(int64(len(image)))
		var piece []byte
		for b.Loop() {
			s := t.BeginSnapshot()
			for done := false; !done; {
				piece, done = s.Next(piece[:0], 256<<10)
			}
		}
		b.ReportMetric(float64(len(image))/benchTimers, "B/timer")
	})
	b.Run("load", func(b *testing.B) {
		b.SetBytes(int64(len(image)))
		for b.Loop() {
			if _, err := Load(1, bytes.NewReader(image)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
