package node

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkLists is what requests over all shards take in a cluster of nine nodes and 1,024 shards,
// or CARILLON_BENCH_SHARDS, in this process, with 100 timers in each: each as p50 and p99, in ms.
func BenchmarkLists(b *testing.B) {
	shards := 1024
	if n, err := strconv.Atoi(os.Getenv("CARILLON_BENCH_SHARDS")); err == nil {
		shards = n
	}
	nodes := several(b, 9, func(c *Config) { c.Shards = shards })
	n := nodes[4]
	n.insist("PUT", "/v1/topics/listed", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	n.insist("PUT", "/v1/topics/held", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	n.insist("POST", "/v1/topics/held/pause", "")
	fill := func(topic string, timers int, when string) {
		for from := 0; from < timers; from += 1000 {
			var ops strings.Builder
			for i := range 1000 {
				fmt.Fprintf(&ops, `,{"op":"add","id":"%d-%d",%s,"payload":{"order":%d}}`, (from+i)%10, from+i, fmt.Sprintf(when, from+i), i)
			}
			until(b, "a batch without errors", func() bool {
				status, answer := n.call("POST", "/v1/topics/"+topic+"/batch?brief=true", `{"ops":[`+ops.String()[1:]+`]}`)
				return status == 200 && !strings.Contains(answer, `"error"`)
			})
		}
	}
	fill("listed", 100*shards, fmt.Sprintf(`"at_ms":%d%%06d`, time.Now().Add(24*time.Hour).UnixMilli()/1_000_000))
	fill("held", 10_000, `"at_ms":1700000%06d`)
	measured(b, n, "page", "GET", "/v1/topics/listed/timers?limit=100", "")
	measured(b, n, "prefix", "GET", "/v1/topics/listed/timers?limit=100&id_prefix=7-", "")
	measured(b, n, "every", "GET", "/v1/timers?limit=100&id_prefix=7-", "")
	measured(b, n, "waiting", "GET", "/v1/topics/held/timers?limit=100", "")
	measured(b, n, "dead", "GET", "/v1/topics/listed/dead?limit=100", "")
	measured(b, n, "topic", "GET", "/v1/topics/listed", "")
	measured(b, n, "history", "GET", "/v1/topics/listed/history?limit=100", "")
	measured(b, n, "bulk", "POST", "/v1/topics/listed/cancel?dry_run=true", `{"filter":{"id_prefix":"7-1234"}}`)
	measured(b, n, "due", "GET", "/v1/due", "")
	measured(b, n, "stats", "GET", "/v1/cluster/stats", "")
	measured(b, n, "cluster", "GET", "/v1/cluster", "")
	measured(b, n, "metrics", "GET", "/metrics", "")
}

// BenchmarkTopics is what pages of 100,000 topics take at a node of 1,024 shards.
func BenchmarkTopics(b *testing.B) {
	const topics, workers = 100_000, 200
	n := start(b, b.TempDir(), func(c *Config) { c.Shards, c.Logger = 1024, slog.New(slog.DiscardHandler) })
	var work sync.WaitGroup
	all := n.node.run.Load().core.Load().topics
	for w := range workers {
		work.Go(func() {
			for i := w; i < topics; i += workers {
				if _, err := all.Ensure(b.Context(), fmt.Sprintf("t%06d", i)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	work.Wait()
	measured(b, n, "page", "GET", "/v1/topics?limit=100", "")
	measured(b, n, "thousand", "GET", "/v1/topics?limit=1000", "")
	measured(b, n, "counted", "GET", "/v1/topics?limit=100&counts=true", "")
}

// BenchmarkSearch is what searches over 100,000 topics, with ten timers in each, take at a node of
// four shards.
func BenchmarkSearch(b *testing.B) {
	const topics, each, workers = 100_000, 10, 32
	n := start(b, b.TempDir(), func(c *Config) { c.Shards, c.Logger = 4, slog.New(slog.DiscardHandler) })
	var work sync.WaitGroup
	for w := range workers {
		work.Go(func() {
			for topic := w; topic < topics; topic += workers {
				var ops strings.Builder
				for i := range each {
					fmt.Fprintf(&ops, `,{"op":"add","id":"%d-%d","delay":"24h","labels":["l%d"],"payload":{"order":%d},"callback":{"url":"http://127.0.0.1:1/"}}`, i, topic, topic%1000, i)
				}
				n.insist("POST", fmt.Sprintf("/v1/topics/t%06d/batch?brief=true", topic), `{"ops":[`+ops.String()[1:]+`]}`)
			}
		})
	}
	work.Wait()
	measured(b, n, "id", "GET", "/v1/timers?limit=100&id=7-77777", "")
	measured(b, n, "prefix", "GET", "/v1/timers?limit=100&id_prefix=7-7", "")
	measured(b, n, "label", "GET", "/v1/timers?limit=100&label=l77", "")
	measured(b, n, "any", "GET", "/v1/timers?limit=100", "")
}

// insist asks until it is answered: a cluster that has just begun, on a small machine, is slow.
func (r *running) insist(method, path, body string) {
	until(r.t, method+" "+path, func() bool {
		status, _ := r.call(method, path, body)
		return status/100 == 2
	})
}

func measured(b *testing.B, n *running, name, method, path, body string) {
	b.Run(name, func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			began := time.Now()
			n.insist(method, path, body)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
		b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
		b.ReportMetric(0, "ns/op")
	})
}
