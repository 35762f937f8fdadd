package shard

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon/timer"
)

var divisionTimers = flag.Int("division.timers", 250_000, "so many timers has the shard that BenchmarkDivision divides")

// BenchmarkDivision divides a shard of a host alone, while two clients write one after the other:
// one to timers that stay, and one to timers that leave. It reports how long the whole took, and
// the longest that each of the clients waited.
func BenchmarkDivision(b *testing.B) {
	topic := &timer.Topic{Name: "bench"}
	payload := []byte(`{"d":"` + strings.Repeat("x", 192) + `"}`)
	for b.Loop() {
		b.StopTimer()
		h, _ := benchHost(b, 1)
		put := func(id timer.ShardID, name string) error {
			_, err := h.Do(id, &timer.Command{Kind: timer.Put, Topic: 1, ID: name, Spec: &timer.Spec{DueMs: 1 << 41, Payload: payload, PayloadKind: timer.JSONPayload}}, true)
			return err
		}
		names := [3][]string{}
		ops := make([]timer.Op, 500)
		for from := 0; from < *divisionTimers; from += len(ops) {
			for i := range ops {
				name := fmt.Sprint("timer-", from+i)
				ops[i] = timer.Op{Shard: 1, Brief: true, Command: &timer.Command{Kind: timer.Add, Topic: 1, ID: name, Spec: &timer.Spec{DueMs: 1<<41 + int64(from+i), Payload: payload, PayloadKind: timer.JSONPayload}}}
				if half := timer.ShardOf(topic, name, 2); len(names[half]) < 100 {
					names[half] = append(names[half], name)
				}
			}
			if h.DoAll(ops); ops[0].Err != nil {
				b.Fatal(ops[0].Err)
			}
		}
		h.Grow(2, 1)
		var stop atomic.Bool
		var longest [3]time.Duration
		var clients sync.WaitGroup
		for _, half := range []timer.ShardID{1, 2} {
			clients.Go(func() {
				for n := 0; !stop.Load(); n++ {
					begun := time.Now()
					for put(half, names[half][n%100]) != nil && !stop.Load() {
						<-time.After(time.Millisecond)
					}
					longest[half] = max(longest[half], time.Since(begun))
				}
			})
		}
		<-time.After(300 * time.Millisecond)
		calm := longest
		longest = [3]time.Duration{}
		row := Assignment{Group: 2, Epoch: 1, From: 1, Members: []Member{{Node: 7, Replica: ReplicaID(7, 1)}}}
		b.StartTimer()
		begun := time.Now()
		h.Place([]Assignment{row})
		for !h.group(2).public.serves.Load() {
			<-time.After(time.Millisecond)
		}
		served := time.Since(begun)
		row.Settled = true
		h.Place([]Assignment{row})
		for swept := false; !swept; {
			<-time.After(time.Millisecond)
			s := h.shard(1)
			_ = h.onWorker(s.g.w, func(*worker) { swept = s.table.DividedOf() > 0 && !s.table.Leaving() })
		}
		all := time.Since(begun)
		stop.Store(true)
		clients.Wait()
		b.ReportMetric(float64(served.Milliseconds()), "ms-until-served")
		b.ReportMetric(float64(all.Milliseconds()), "ms-until-swept")
		b.ReportMetric(float64(longest[1].Microseconds())/1000, "ms-wait-stays")
		b.ReportMetric(float64(longest[2].Microseconds())/1000, "ms-wait-leaves")
		b.ReportMetric(float64(max(calm[1], calm[2]).Microseconds())/1000, "ms-wait-before")
	}
}
