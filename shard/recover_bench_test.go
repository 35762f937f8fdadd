package shard

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"carillon/internal/vfs"
	"carillon/shard/table"
	"carillon/test/testkit"
	"carillon/timer"
)

var (
	recoverTimers  = flag.Int("recover.timers", 200_000, "so many timers are recovered by BenchmarkHostRecover")
	recoverPayload = flag.Int("recover.payload", 16, "bytes of each one's payload")
)

// BenchmarkHostRecover measures the start of a host of 16 shards, from the log alone, or from
// snapshots of most shards and the log of the rest. It runs on one goroutine, and on all
// processors.
func BenchmarkHostRecover(b *testing.B) {
	const shards = 16
	for _, from := range []string{"log", "snapshots"} {
		config := Config{Shards: shards, Node: 7, Incarnation: table.NewIncarnation(7, 1), Meta: &soleRows(1, 7)[0], FS: vfs.OS{}, Dir: b.TempDir(),
			Topics: benchTopics{&timer.Topic{ID: 1, Name: "bench", Policy: timer.DefaultPolicy()}}, Dispatcher: &benchReceiver{}, Machine: benchMachine{},
			Observer: benchObserver{}, Logger: slog.New(slog.DiscardHandler)}
		if from == "snapshots" {
			// About a dozen generations: the first are deleted once there are snapshots.
			config.Log.GenBytes = int64(*recoverTimers) * 8
			config.Log.SegmentBytes = config.Log.GenBytes / 64
		}
		recoverFill(b, config, *recoverTimers)
		for _, config.Loaders = range []int{1, runtime.GOMAXPROCS(0)} {
			b.Run(fmt.Sprintf("%s/loaders=%d", from, config.Loaders), func(b *testing.B) { benchRecover(b, config) })
		}
	}
}

// recoverFill adds timers to a new host, a hundred per shard at a time, and stops it.
func recoverFill(b *testing.B, config Config, timers int) {
	b.Helper()
	h, err := New(config)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	<-h.Started()
	h.Place(soleRows(config.Shards+1, 7))
	for h.NotReady(false) != nil {
		runtime.Gosched()
	}
	payload := []byte(strings.Repeat("x", *recoverPayload))
	ops := make([]timer.Op, 100)
	for from := 0; from < timers; from += len(ops) {
		for i := range ops {
			at := timer.ShardID(1 + from/len(ops)%config.Shards)
			ops[i] = timer.Op{Shard: at, Brief: true, Command: &timer.Command{Kind: timer.Add, Topic: 1, ID: timer.NewID(at, uint64(from+i), 0), Content: uint64(from + i),
				Spec: &timer.Spec{DueMs: 1<<41 + int64(from+i)*7919%28_000_000_000, Payload: payload, PayloadKind: timer.JSONPayload, Callback: timer.Callback{URL: "http://127.0.0.1:7780/"}}}}
		}
		h.DoAll(ops)
		for i := range ops {
			if ops[i].Err != nil {
				b.Fatal(ops[i].Err)
			}
		}
	}
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

func benchRecover(b *testing.B, config Config) {
	config.Meta = nil
	var spent time.Duration
	timers, loaded := 0, 0
	for b.Loop() {
		b.StopTimer()
		h, err := New(config)
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		began := testkit.CPUTime(b)
		b.StartTimer()
		if err := h.Open(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		spent += testkit.CPUTime(b) - began
		for _, g := range h.all()[1:] {
			timers += shardOf(g).table.Len()
			if g.files.Newest.Index > 0 {
				loaded++
			}
		}
		if err := h.stream.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	if timers < b.N*(*recoverTimers*9/10) { // the last commits may wait for the election
		b.Fatalf("%d timers", timers/b.N)
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(timers), "cpu-ns/timer")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(timers), "ns/timer")
	b.ReportMetric(float64(loaded)/float64(b.N), "snapshots")
}
