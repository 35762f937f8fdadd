//go:build !race

package api

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// TestCostOfAnAdd bounds the allocations of a request for one add in this package, slightly above
// the measured figures: see package shard's tests of the same name. It does not run with the race
// detector, under which a sync.Pool drops items.
func TestCostOfAnAdd(t *testing.T) {
	costOfAdds(t, "/v1/topics/orders/timers", benchBody, 201, 1, 3.3, 800)
}

// TestCostOfABatch bounds the same of each add of a batch of a thousand. The body itself is 260 B
// of it, and the fake engine allocates the most of the rest: an object of 512 B.
func TestCostOfABatch(t *testing.T) {
	const adds = 1000
	op := `{"op":"add",` + string(benchBody[1:])
	body := `{"ops":[` + strings.Repeat(op+",", adds-1) + op + `]}`
	costOfAdds(t, "/v1/topics/orders/batch?brief=true", []byte(body), 200, adds, 2.2, 800)
}

func costOfAdds(t *testing.T, path string, text []byte, status, each int, objects, size float64) {
	s := benchServer(t)
	var ctx fasthttp.RequestCtx
	ctx.Request.Header.SetMethod("POST")
	ctx.Request.SetRequestURI(path)
	ctx.Request.Header.SetContentType("application/json")
	body := bytes.NewReader(text)
	add := func() {
		ctx.Response.Reset()
		body.Reset(text)
		ctx.Request.SetBodyStream(body, len(text))
		s.serve(&ctx)
	}
	const adds = 1000
	least, bytes := 1e9, 1e9
	for range 5 { // a collection empties pools
		var before, after runtime.MemStats
		add()
		runtime.ReadMemStats(&before)
		for range adds / each {
			add()
		}
		runtime.ReadMemStats(&after)
		least = min(least, float64(after.Mallocs-before.Mallocs)/adds)
		bytes = min(bytes, float64(after.TotalAlloc-before.TotalAlloc)/adds)
	}
	if ctx.Response.StatusCode() != status {
		t.Fatal(string(ctx.Response.Body()))
	}
	t.Logf("%.2f objects, %.0f B an add", least, bytes)
	if least > objects || bytes > size {
		t.Errorf("an add allocates %.2f objects and %.0f B, more than %g and %g", least, bytes, objects, size)
	}
}
