package shard

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/internal/vfs"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/test/testkit"
	"carillon/timer"
)

// benchObserver and the other fakes of this file are as cheap as possible, so that the host
// dominates the measurement.
type benchObserver struct{}

func (benchObserver) Command(timer.Kind, timer.Code)        {}
func (benchObserver) Outcome(timer.TopicID, *table.Outcome) {}
func (benchObserver) Expired()                              {}
func (benchObserver) Outcomes(int, int)                     {}
func (benchObserver) Frame(int)                             {}
func (benchObserver) Lateness(int64, bool, *[16]byte)       {}
func (benchObserver) Elected()                              {}
func (benchObserver) Snapshot(_ time.Duration)              {}
func (benchObserver) SnapshotSent(int64)                    {}
func (benchObserver) DeadReplaced(int)                      {}
func (benchObserver) SnapshotReceived(int64)                {}

type benchTopics struct{ topic *timer.Topic }

func (t benchTopics) Topic(timer.TopicID) (*timer.Topic, bool) { return t.topic, true }

func (t benchTopics) Named(string) (*timer.Topic, bool) { return t.topic, true }
func (t benchTopics) Given(timer.TopicID) bool          { return true }
func (t benchTopics) Current() bool                     { return true }

type benchMachine struct{}

func (benchMachine) Check([]byte) error                  { return nil }
func (benchMachine) Apply(int64, []byte) (any, error)    { return nil, nil }
func (benchMachine) Hash() uint64                        { return 1 }
func (benchMachine) Scrub(int) (bool, bool)              { return true, true }
func (benchMachine) BeginSave() timer.Saving             { return &fakeSaving{hash: 1} }
func (benchMachine) Read(io.Reader) (any, uint64, error) { return nil, 1, nil }
func (benchMachine) Replace(any)                         {}

// benchReceiver permits every call and ends it at once.
type benchReceiver struct{ fired atomic.Int64 }

func (r *benchReceiver) Route(*timer.Topic, *timer.Callback) (scheduler.Destination, error) {
	return r, nil
}
func (r *benchReceiver) Tenant(*timer.Topic) string { return "" }

func (r *benchReceiver) Acquire(scheduler.Destination, *timer.Topic, delivery.Ask) (delivery.Permit, delivery.Verdict) {
	return r, delivery.Verdict{}
}

func (r *benchReceiver) State(scheduler.Destination, *timer.Topic) delivery.State {
	return delivery.State{}
}

func (r *benchReceiver) Start(_ delivery.Permit, _ *scheduler.Delivery, done func(delivery.Outcome)) {
	r.fired.Add(1)
	now := time.Now().UnixMilli()
	done(delivery.Outcome{Status: 200, StartedMs: now, EndedMs: now})
}
func (r *benchReceiver) Cancel() {}
func (r *benchReceiver) StartBatch(delivery.Permit, *scheduler.BatchCall, func([]delivery.Outcome)) {
	panic("no topic has calls of many timers")
}

func benchHost(b testing.TB, shards int) (*Host, *benchReceiver) {
	b.Helper()
	r := &benchReceiver{}
	h, err := New(Config{Shards: shards, Node: 7, Incarnation: table.NewIncarnation(7, 1), Meta: &soleRows(1, 7)[0], FS: vfs.OS{}, Dir: b.TempDir(),
		Topics: benchTopics{&timer.Topic{ID: 1, Name: "bench", Policy: timer.DefaultPolicy()}}, Dispatcher: r, Machine: benchMachine{},
		Observer: benchObserver{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	<-h.Started()
	h.Place(soleRows(shards+1, 7))
	for h.NotReady() != nil {
		runtime.Gosched()
	}
	return h, r
}

// BenchmarkHostAdd measures durable adds without HTTP, on the operating system's file system. Each
// client has one add in flight.
func BenchmarkHostAdd(b *testing.B) {
	for _, shards := range []int{1, 4, 16, 64} {
		for _, clients := range []int{64, 256} {
			b.Run(fmt.Sprintf("shards=%d/clients=%d", shards, clients), func(b *testing.B) {
				h, _ := benchHost(b, shards)
				payload := []byte(`{"d":"` + strings.Repeat("x", 192) + `"}`)
				var next atomic.Int64
				var clientsDone sync.WaitGroup
				b.ResetTimer()
				b.ReportAllocs()
				start := testkit.CPUTime(b)
				for range clients {
					clientsDone.Go(func() {
						for {
							n := next.Add(1)
							if n > int64(b.N) {
								return
							}
							id := timer.NewID(timer.ShardID(1+n%int64(shards)), uint64(n), 0)
							cmd := timer.Command{Kind: timer.Add, Topic: 1, ID: id, Spec: &timer.Spec{DueMs: 1 << 41, Payload: payload, PayloadKind: timer.JSONPayload}}
							if _, err := h.Do(timer.ShardOf(&timer.Topic{Name: "bench"}, id, shards), &cmd, true); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				clientsDone.Wait()
				b.ReportMetric(float64(testkit.CPUTime(b)-start)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// BenchmarkHostBatch measures durable adds without HTTP by calls of a thousand, from 8 clients. An
// operation of the benchmark is one add.
func BenchmarkHostBatch(b *testing.B) {
	const clients, shards, most = 8, 4, 1000
	h, _ := benchHost(b, shards)
	payload := []byte(`{"d":"` + strings.Repeat("x", 192) + `"}`)
	topic := &timer.Topic{Name: "bench"}
	var next atomic.Int64
	var clientsDone sync.WaitGroup
	b.ResetTimer()
	b.ReportAllocs()
	start := testkit.CPUTime(b)
	for range clients {
		clientsDone.Go(func() {
			list, commands, specs := make([]timer.Op, most), make([]timer.Command, most), make([]timer.Spec, most)
			for {
				end := next.Add(most)
				n := min(most, int64(b.N)-(end-most))
				if n <= 0 {
					return
				}
				for i := range list[:n] {
					id := "order-" + strconv.FormatInt(end-most+int64(i), 10)
					specs[i] = timer.Spec{DueMs: 1 << 41, Payload: payload, PayloadKind: timer.JSONPayload}
					commands[i] = timer.Command{Kind: timer.Add, Topic: 1, ID: id, Content: uint64(i), Spec: &specs[i]}
					list[i] = timer.Op{Shard: timer.ShardOf(topic, id, shards), Command: &commands[i], Brief: true}
				}
				h.DoAll(list[:n])
				for i := range list[:n] {
					if list[i].Err != nil || list[i].Result.Code != timer.Created {
						b.Error(list[i].Result.Code, list[i].Err)
						return
					}
				}
			}
		})
	}
	clientsDone.Wait()
	b.ReportMetric(float64(testkit.CPUTime(b)-start)/float64(b.N), "cpu-ns/op")
}
