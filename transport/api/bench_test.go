package api

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"carillon/timer"
	"carillon/transport/api/backend"
	"carillon/transport/api/web"

	"github.com/valyala/fasthttp"
)

// benchBody is one add as clients send it: about 200 bytes of payload, everything else from the
// topic.
var benchBody = []byte(`{"id":"order-7700123","delay":"30m","labels":["orders"],"payload":{"order":7700123,"customer":"c-99182","items":[{"sku":"AB-1","n":2},{"sku":"CD-77","n":1}],"total":"129.90","note":"please ring twice, the bell is quiet","step":"close-if-unpaid"}}`)

// noEngine answers at once, with the timer that was asked for.
type noEngine struct {
	fakeEngine
	topic timer.Topic
	core  *backend.Core
}

// noTopics has the one topic.
type noTopics struct {
	fakeTopics
	topic *timer.Topic
}

func (t noTopics) Here(string) (*timer.Topic, bool) { return t.topic, true }

func (e *noEngine) Core() (*backend.Core, error) { return e.core, nil }

func (e *noEngine) Do(_ context.Context, _ timer.ShardID, cmd *timer.Command, _ bool) (timer.Result, error) {
	t := &timer.Timer{Topic: cmd.Topic, ID: cmd.ID, Spec: *cmd.Spec, Seq: 77123, Tag: cmd.Tag, Version: 1,
		State: timer.Scheduled, NextMs: cmd.Spec.DueMs, CreatedMs: cmd.Spec.DueMs, UpdatedMs: cmd.Spec.DueMs, LatenessMs: -1}
	return timer.Result{Code: timer.Created, Timer: t}, nil
}

func (e *noEngine) DoAll(ctx context.Context, ops []timer.Op) {
	for i := range ops {
		ops[i].Result, ops[i].Err = e.Do(ctx, ops[i].Shard, ops[i].Command, ops[i].Brief)
	}
}

func benchServer(b testing.TB) *Server {
	b.Helper()
	e := &noEngine{fakeEngine: fakeEngine{shards: 16}, topic: timer.Topic{ID: 3, Name: "orders", Policy: timer.DefaultPolicy()}}
	e.topic.Policy.Callback.URL = "http://127.0.0.1:9/hook"
	e.core = &backend.Core{Timers: e, Topics: noTopics{topic: &e.topic}}
	s, err := New(Config{Settings: web.Settings{Engine: e}})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// cpuTime is the processor time that this process has used: on a machine that others use too, it
// says more than the clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// reportCPU reports the processor time since start per piece of work.
func reportCPU(b *testing.B, start time.Duration, pieces int) {
	b.ReportMetric(float64(cpuTime()-start)/float64(b.N*pieces), "cpu-ns/request")
}

// The whole of an add in this package: route, read, check, hash, render. No socket.
func BenchmarkAdd(b *testing.B) {
	s := benchServer(b)
	var ctx fasthttp.RequestCtx
	ctx.Request.Header.SetMethod("POST")
	ctx.Request.SetRequestURI("/v1/topics/orders/timers")
	ctx.Request.Header.SetContentType("application/json")
	b.ReportAllocs()
	start := cpuTime()
	for b.Loop() {
		ctx.Response.Reset()
		ctx.Request.SetBodyStream(bytes.NewReader(benchBody), len(benchBody))
		s.serve(&ctx)
	}
	reportCPU(b, start, 1)
	if ctx.Response.StatusCode() != 201 {
		b.Fatal(string(ctx.Response.Body()))
	}
}

func BenchmarkBatch100(b *testing.B) {
	s := benchServer(b)
	var ctx fasthttp.RequestCtx
	ctx.Request.Header.SetMethod("POST")
	ctx.Request.SetRequestURI("/v1/topics/orders/batch?brief=true")
	ctx.Request.Header.SetContentType("application/json")
	op := `{"op":"add",` + string(benchBody[1:])
	body := []byte(`{"ops":[` + strings.Repeat(op+",", 99) + op + `]}`)
	b.ReportAllocs()
	start := cpuTime()
	for b.Loop() {
		ctx.Response.Reset()
		ctx.Request.SetBodyStream(bytes.NewReader(body), len(body))
		s.serve(&ctx)
	}
	reportCPU(b, start, 100)
	if ctx.Response.StatusCode() != 200 {
		b.Fatal(string(ctx.Response.Body()))
	}
}

// One request after another on one loopback connection: adds fasthttp, the framer and the system
// calls of both sides.
func BenchmarkAddOverSocket(b *testing.B) {
	s := benchServer(b)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	// 16 requests at a time, pipelined, so that the cost of the client's side hardly counts.
	const depth = 16
	req := []byte("POST /v1/topics/orders/timers HTTP/1.1\r\nHost: 127.0.0.1:7700\r\nContent-Type: application/json\r\nContent-Length: " +
		strconv.Itoa(len(benchBody)) + "\r\n\r\n" + string(benchBody))
	all := bytes.Repeat(req, depth)
	br := bufio.NewReaderSize(conn, 1<<16)
	buf := make([]byte, 1<<16)
	b.ReportAllocs()
	start := cpuTime()
	for b.Loop() {
		if _, err := conn.Write(all); err != nil {
			b.Fatal(err)
		}
		for range depth {
			readAnswer(b, br, buf)
		}
	}
	reportCPU(b, start, depth)
	conn.Close()
	cancel()
	<-done
}

func readAnswer(b *testing.B, br *bufio.Reader, buf []byte) {
	length := 0
	for {
		line, err := br.ReadSlice('\n')
		if err != nil {
			b.Fatal(err)
		}
		if len(line) == 2 {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	}
	if _, err := io.ReadFull(br, buf[:length]); err != nil {
		b.Fatal(err)
	}
}
