package shard

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
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
	h := runBenchHost(b, shards, 7, r, soleRows(shards+1, 7), nil)
	for h.NotReady(false) != nil {
		runtime.Gosched()
	}
	return h, r
}

// runBenchHost runs one node's host until the benchmark ends.
func runBenchHost(b testing.TB, shards int, node uint64, r *benchReceiver, rows []Assignment, peers Peers) *Host {
	b.Helper()
	h, err := New(Config{Shards: shards, Node: node, Incarnation: table.NewIncarnation(node, 1), Meta: &rows[0], FS: vfs.OS{}, Dir: b.TempDir(),
		Topics: benchTopics{&timer.Topic{ID: 1, Name: "bench", Policy: timer.DefaultPolicy()}}, Dispatcher: r, Machine: benchMachine{},
		Observer: benchObserver{}, Logger: slog.New(slog.DiscardHandler), Peers: peers})
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
	h.Place(rows)
	return h
}

// BenchmarkHostAdd measures durable adds without HTTP, on the operating system's file system. Each
// client has one add in flight.
func BenchmarkHostAdd(b *testing.B) {
	for _, shards := range []int{1, 4, 16, 64} {
		for _, clients := range []int{64, 256} {
			b.Run(fmt.Sprintf("shards=%d/clients=%d", shards, clients), func(b *testing.B) {
				h, _ := benchHost(b, shards)
				benchAdds(b, shards, clients, func(timer.ShardID) *Host { return h })
			})
		}
	}
}

// BenchmarkClusterAdd measures the same with three replicas, in three hosts that pass frames to each
// other in memory. Clients call the leader.
func BenchmarkClusterAdd(b *testing.B) {
	for _, shards := range []int{4, 16, 64} {
		for _, clients := range []int{64, 256} {
			b.Run(fmt.Sprintf("shards=%d/clients=%d", shards, clients), func(b *testing.B) {
				hosts := benchCluster(b, shards)
				leaders := make([]*Host, shards+1)
				for id := range leaders {
					leaders[id] = hosts[slices.IndexFunc(hosts, func(h *Host) bool { return h.Leads(timer.ShardID(id)) })]
				}
				benchAdds(b, shards, clients, func(id timer.ShardID) *Host { return leaders[id] })
			})
		}
	}
}

// benchLinks delivers frames to the other hosts of a process, each node's by a goroutine.
type benchLinks struct {
	noPeers
	to map[uint64]chan []byte
}

func (l benchLinks) Send(node uint64, frame []byte) {
	select {
	case l.to[node] <- frame:
	default:
	}
}

// benchCluster runs three hosts, each of which leads a third of the shards.
func benchCluster(b *testing.B, shards int) (hosts []*Host) {
	b.Helper()
	nodes := []uint64{7, 8, 9}
	var rows []Assignment
	for id := range timer.ShardID(shards + 1) {
		row := Assignment{Group: id, Epoch: 1, Settled: true}
		for i := range nodes {
			node := nodes[(int(id)+i)%len(nodes)]
			row.Members = append(row.Members, Member{Node: node, Replica: ReplicaID(node, 1)})
		}
		rows = append(rows, row)
	}
	links := map[uint64]benchLinks{}
	for _, node := range nodes {
		links[node] = benchLinks{to: map[uint64]chan []byte{}}
		for _, other := range nodes {
			links[node].to[other] = make(chan []byte, 1024)
		}
		hosts = append(hosts, runBenchHost(b, shards, node, &benchReceiver{}, rows, links[node]))
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	for from, l := range links {
		for to, frames := range l.to {
			go func() {
				for {
					select {
					case frame := <-frames:
						hosts[slices.Index(nodes, to)].Deliver(from, frame)
					case <-ctx.Done():
						return
					}
				}
			}()
		}
	}
	for range time.Tick(tickInterval) {
		led := 0
		for i := range hosts {
			for id := 1; id <= shards; id++ {
				if id%len(nodes) == i && hosts[i].Leads(timer.ShardID(id)) {
					led++
				}
			}
		}
		if led == shards {
			break
		}
	}
	return hosts
}

// benchAdds measures adds of many clients, each of which has one in flight.
func benchAdds(b *testing.B, shards, clients int, leader func(timer.ShardID) *Host) {
	b.Helper()
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
				shard := timer.ShardOf(&timer.Topic{Name: "bench"}, id, shards)
				if _, err := leader(shard).Do(shard, &cmd, true); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	clientsDone.Wait()
	b.ReportMetric(float64(testkit.CPUTime(b)-start)/float64(b.N), "cpu-ns/op")
}

// BenchmarkClusterIdle measures the processor time of three hosts in a second without operations.
func BenchmarkClusterIdle(b *testing.B) {
	for _, shards := range []int{4, 64, 1024} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			benchCluster(b, shards)
			second := time.NewTicker(time.Second)
			b.ResetTimer()
			start := testkit.CPUTime(b)
			for range b.N {
				<-second.C
			}
			b.ReportMetric(float64(testkit.CPUTime(b)-start)/float64(b.N), "cpu-ns/s")
		})
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
