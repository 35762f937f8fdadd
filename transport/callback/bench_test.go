package callback

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon/internal/delivery"

	"github.com/valyala/fasthttp"
)

// startFast serves 200 on loopback.
func startFast(b *testing.B) string {
	b.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) { ctx.SetBodyString("ok") }}
	ended := make(chan struct{})
	go func() { _ = server.Serve(listen); close(ended) }()
	b.Cleanup(func() { _ = server.Shutdown(); <-ended })
	return "http://" + listen.Addr().String() + "/hooks/close"
}

// BenchmarkCalls compares the pool with fasthttp's bare HostClient: the same headers and a body of
// 200 B, to one receiver. The pool has 64 permits, and of these as many calls at once as its pace
// lets it make to a receiver nearby. In one process with the receiver, more at once would need less
// time for each: its goroutines and the pool's wake each other.
func BenchmarkCalls(b *testing.B) {
	const permits = 64
	body := make([]byte, 200)
	b.Run("raw", func(b *testing.B) { benchRaw(b, permits, body) })
	b.Run("raw-paced", func(b *testing.B) { benchRaw(b, leastPace, body) })
	b.Run("pool", func(b *testing.B) { benchPool(b, permits, body, nil) })
	b.Run("chained", func(b *testing.B) { benchChains(b, permits, body) })
	b.Run("signed", func(b *testing.B) { benchPool(b, permits, body, [][]byte{make([]byte, 32)}) })
}

func benchRaw(b *testing.B, atOnce int, body []byte) {
	url := startFast(b)
	client := &fasthttp.HostClient{
		Addr: url[len("http://") : len(url)-len("/hooks/close")], MaxConns: atOnce, MaxIdemponentCallAttempts: 1,
		MaxIdleConnDuration: 50 * time.Millisecond, ConnPoolStrategy: fasthttp.LIFO, DisablePathNormalizing: true,
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	var wait sync.WaitGroup
	for range atOnce {
		wait.Go(func() {
			req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			for left.Add(-1) >= 0 {
				rawCall(b, client, req, resp, url, body)
			}
		})
	}
	wait.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	client.CloseIdleConnections()
}

func rawCall(b *testing.B, client *fasthttp.HostClient, req *fasthttp.Request, resp *fasthttp.Response, url string, body []byte) {
	req.Reset()
	req.SetRequestURI(url)
	req.Header.SetMethod("POST")
	req.Header.SetContentType("application/json")
	for _, h := range [...][2]string{
		{"webhook-id", "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"}, {"Carillon-Topic", "orders"}, {"Carillon-Timer", "{order-77}close"},
		{"Carillon-Due", "1700000000000"}, {"Carillon-Attempt", "1"}, {"Carillon-Fence", "7"},
	} {
		req.Header.Set(h[0], h[1])
	}
	req.SetBodyRaw(body)
	if err := client.DoTimeout(req, resp, 10*time.Second); err != nil || resp.StatusCode() != 200 {
		b.Error(err, resp.StatusCode())
	}
}

func benchPool(b *testing.B, atOnce int, body []byte, secrets [][]byte) {
	url := startFast(b)
	p := startPool(b, Config{Policy: local})
	key := keyOf(b, url)
	req := post(url)
	req.Body, req.WebhookID, req.Secrets, req.Timeout = body, "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", secrets, 10*time.Second
	ended := make(chan struct{}, atOnce)
	done := func(o Outcome) {
		if o.Err != "" {
			b.Errorf("%+v", o)
		}
		ended <- struct{}{}
	}
	w := newWaiter()
	b.ReportAllocs()
	b.ResetTimer()
	inFlight := 0
	for range b.N {
		if inFlight == atOnce {
			<-ended
			inFlight--
		}
		permit, v := acquire(p, Call{Key: key, Limit: 2 * atOnce}, w)
		if v.Kind == delivery.ReceiverFull {
			permit = <-w.granted
		}
		permit.Start(req, done)
		inFlight++
	}
	for range inFlight {
		<-ended
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// benchChains starts each next call from the end of the one before, as a loop of
// callers does, without a goroutine that drives them all.
func benchChains(b *testing.B, atOnce int, body []byte) {
	url := startFast(b)
	p := startPool(b, Config{Policy: local})
	key := keyOf(b, url)
	req := post(url)
	req.Body, req.WebhookID, req.Timeout = body, "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", 10*time.Second
	var left atomic.Int64
	left.Store(int64(b.N))
	var wait sync.WaitGroup
	w := newWaiter()
	var next func(o Outcome)
	next = func(o Outcome) {
		if o.Err != "" {
			b.Errorf("%+v", o)
		}
		if left.Add(-1) < 0 {
			wait.Done()
			return
		}
		permit, v := acquire(p, Call{Key: key, Limit: 4 * atOnce}, w)
		if v.Kind != delivery.Granted {
			b.Errorf("%+v", v)
			wait.Done()
			return
		}
		permit.Start(req, next)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for range atOnce {
		wait.Add(1)
		next(Outcome{})
	}
	wait.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// BenchmarkAcquire is the path on the caller's own goroutine.
func BenchmarkAcquire(b *testing.B) {
	p := newPool(b, Config{})
	key, w := destinationKey(1), newWaiter()
	b.ReportAllocs()
	for b.Loop() {
		permit, _ := acquire(p, Call{Key: key}, w)
		permit.Cancel()
	}
}

// instant is a connection that answers every write at once, without a network.
type instant struct {
	net.Conn
	left int // of the answer
}

func (i *instant) Write(b []byte) (int, error) { i.left = len(answer200); return len(b), nil }
func (i *instant) Read(b []byte) (int, error) {
	n := copy(b, answer200[len(answer200)-i.left:])
	i.left -= n
	return n, nil
}
func (*instant) Close() error                     { return nil }
func (*instant) SetDeadline(time.Time) error      { return nil }
func (*instant) SetReadDeadline(time.Time) error  { return nil }
func (*instant) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkOwnPart is a call without the network: the cost of the pool itself.
func BenchmarkOwnPart(b *testing.B) {
	p := startPool(b, Config{Policy: local, Dial: func(context.Context, string, string) (net.Conn, error) { return &instant{}, nil }})
	const url = "http://127.0.0.1:80/hooks/close"
	key, w := keyOf(b, url), newWaiter()
	req := post(url)
	req.Body, req.WebhookID = make([]byte, 200), "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W"
	ended := make(chan Outcome, 1)
	done := func(o Outcome) { ended <- o }
	b.ReportAllocs()
	for b.Loop() {
		permit, v := acquire(p, Call{Key: key}, w)
		if v.Kind != delivery.Granted {
			b.Fatal(v)
		}
		permit.Start(req, done)
		if o := <-ended; o.Err != "" {
			b.Fatalf("%+v", o)
		}
	}
}
