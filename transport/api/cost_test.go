//go:build !race

package api

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/valyala/fasthttp"
)

// TestCostOfAnAdd bounds the allocations of a request for one add in this package, slightly above
// the measured figures: see package shard's tests of the same name. It does not run with the race
// detector, under which a sync.Pool drops items.
func TestCostOfAnAdd(t *testing.T) {
	s := benchServer(t)
	var ctx fasthttp.RequestCtx
	ctx.Request.Header.SetMethod("POST")
	ctx.Request.SetRequestURI("/v1/topics/orders/timers")
	ctx.Request.Header.SetContentType("application/json")
	body := bytes.NewReader(benchBody)
	add := func() {
		ctx.Response.Reset()
		body.Reset(benchBody)
		ctx.Request.SetBodyStream(body, len(benchBody))
		s.serve(&ctx)
	}
	const adds, objects, size = 1000, 4.5, 1320
	least, bytes := 1e9, 1e9
	for range 5 { // a collection empties pools
		var before, after runtime.MemStats
		add()
		runtime.ReadMemStats(&before)
		for range adds {
			add()
		}
		runtime.ReadMemStats(&after)
		least = min(least, float64(after.Mallocs-before.Mallocs)/adds)
		bytes = min(bytes, float64(after.TotalAlloc-before.TotalAlloc)/adds)
	}
	if ctx.Response.StatusCode() != 201 {
		t.Fatal(string(ctx.Response.Body()))
	}
	t.Logf("%.2f objects, %.0f B an add", least, bytes)
	if least > objects || bytes > size {
		t.Errorf("an add allocates %.2f objects and %.0f B, more than %g and %d", least, bytes, objects, size)
	}
}
