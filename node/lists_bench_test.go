package node

import (
	"fmt"
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
	const topics = 100_000
	shards := 1024
	if n, err := strconv.Atoi(os.Getenv("CARILLON_BENCH_SHARDS")); err == nil {
		shards = n
	}
	nodes := several(b, 9, func(c *Config) { c.Shards = shards })
	n := nodes[4]
	insist := func(method, path, body string) { // so many nodes are slow to begin
		until(b, method+" "+path, func() bool {
			status, _ := n.call(method, path, body)
			return status/100 == 2
		})
	}
	insist("PUT", "/v1/topics/listed", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	insist("PUT", "/v1/topics/held", `{"callback":{"url":"http://127.0.0.1:1/"}}`)
	insist("POST", "/v1/topics/held/pause", "")
	fill := func(topic string, timers int, when string) {
		for from := 0; from < timers; from += 1000 {
			var ops strings.Builder
			for i := range 1000 {
				fmt.Fprintf(&ops, `,{"op":"add","id":"%d-%d",%s,"payload":{"order":%d}}`, (from+i)%10, from+i, fmt.Sprintf(when, from+i), i)
			}
			insist("POST", "/v1/topics/"+topic+"/batch", `{"ops":[`+ops.String()[1:]+`]}`)
		}
	}
	fill("listed", 100*shards, `"at_ms":4000000%06d`)
	fill("held", 10_000, `"at_ms":1700000%06d`)
	measure := func(name, method, path, body string) {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				insist(method, path, body)
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
			b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
	measure("page", "GET", "/v1/topics/listed/timers?limit=100", "")
	measure("prefix", "GET", "/v1/topics/listed/timers?limit=100&id_prefix=7-", "")
	measure("waiting", "GET", "/v1/topics/held/timers?limit=100", "")
	measure("dead", "GET", "/v1/topics/listed/dead?limit=100", "")
	measure("topic", "GET", "/v1/topics/listed", "")
	measure("history", "GET", "/v1/topics/listed/history?limit=100", "")
	measure("bulk", "POST", "/v1/topics/listed/cancel?dry_run=true", `{"filter":{"id_prefix":"7-1234"}}`)
	measure("stats", "GET", "/v1/stats", "")
	var work sync.WaitGroup
	for w := range 32 {
		work.Go(func() {
			for i := w; i < topics; i += 32 {
				insist("PUT", fmt.Sprintf("/v1/topics/t%06d", i), `{}`)
			}
		})
	}
	work.Wait()
	measure("topics", "GET", "/v1/topics?limit=1000", "")
	measure("counted", "GET", "/v1/topics?limit=100&counts=true", "")
}
