package sink

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttputil"

	"carillon/test/testkit"
)

const rawCallback = "POST /cb HTTP/1.1\r\nHost: 127.0.0.1:7780\r\nUser-Agent: Carillon/1.0\r\nContent-Type: application/json\r\n" +
	"webhook-id: 01HZX3\r\nCarillon-Topic: loadtest\r\nCarillon-Timer: lt-1\r\nCarillon-Due: 1700000000000\r\n" +
	"Carillon-Attempt: 1\r\nCarillon-Fence: 12\r\nContent-Length: 13\r\n\r\n{\"order\": 77}"

func TestServerReadsTheHeaders(t *testing.T) {
	seen := make(chan Delivery, 1)
	server := NewServer("127.0.0.1:0", func(d *Delivery) int {
		seen <- Delivery{Topic: append([]byte(nil), d.Topic...), Timer: append([]byte(nil), d.Timer...),
			WebhookID: append([]byte(nil), d.WebhookID...), Body: append([]byte(nil), d.Body...),
			DueMs: d.DueMs, Attempt: d.Attempt, Fence: d.Fence}
		return 202
	})
	conn, reader := dial(t, server)
	if got := exchange(t, conn, reader); got != 202 {
		t.Errorf("status = %d, want 202", got)
	}
	d := <-seen
	if string(d.Topic) != "loadtest" || string(d.Timer) != "lt-1" || string(d.WebhookID) != "01HZX3" ||
		d.DueMs != 1700000000000 || d.Attempt != 1 || d.Fence != 12 || string(d.Body) != `{"order": 77}` {
		t.Errorf("delivery = %+v", d)
	}
}

func TestServerStopsDespiteASilentConnection(t *testing.T) {
	var header fasthttp.ResponseHeader
	header.AppendBytes(nil) // starts fasthttp's clock, which never ends, outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { <-time.After(time.Minute) }) // until fasthttp's workers end
		server, listener := NewServer("", func(*Delivery) int { return 200 }), fasthttputil.NewInmemoryListener()
		server.Use(listener)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- server.Run(ctx) }()
		conn, err := listener.Dial()
		testkit.Must(t, err)
		defer conn.Close()
		synctest.Wait()
		stopping := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(stopping); took > shutdownTimeout/2 {
			t.Errorf("stopping took %v", took)
		}
	})
}

func BenchmarkSink(b *testing.B) {
	s, err := New(Config{Listen: "127.0.0.1:0", Print: true, Out: new(output)})
	testkit.Must(b, err)
	conn, reader := dial(b, s.server)
	b.ReportAllocs()
	for b.Loop() {
		exchange(b, conn, reader)
	}
}

func BenchmarkBareServer(b *testing.B) {
	s := NewServer("127.0.0.1:0", func(*Delivery) int { return 200 })
	s.http.Handler = func(*fasthttp.RequestCtx) {}
	conn, reader := dial(b, s)
	b.ReportAllocs()
	for b.Loop() {
		exchange(b, conn, reader)
	}
}

// dial runs the server and returns a connection to it; both end with the test.
func dial(t testing.TB, server *Server) (net.Conn, *bufio.Reader) {
	t.Helper()
	address, err := server.Listen()
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	conn, err := net.Dial("tcp", address)
	testkit.Must(t, err)
	t.Cleanup(func() {
		conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return conn, bufio.NewReader(conn)
}

func exchange(t testing.TB, conn net.Conn, reader *bufio.Reader) int {
	t.Helper()
	if _, err := conn.Write([]byte(rawCallback)); err != nil {
		t.Fatal(err)
	}
	var response fasthttp.Response
	if err := response.Read(reader); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode()
}

// By a node's test clock a call is on time, whatever the time is here.
func TestLatenessByTestClock(t *testing.T) {
	d := Delivery{Topic: []byte("a"), DueMs: 1767225600000, ArrivedUs: 1_800_000_000_000_000, ClockUs: testClock([]byte("2026-01-01T00:00:00.25Z"))}
	if d.LatenessUs() != 250_000 || d.Early() {
		t.Errorf("late %d µs", d.LatenessUs())
	}
	if line := describe(&d, 200, ""); !strings.HasPrefix(line, "2026-01-01T00:00:00Z  a/") {
		t.Error(line)
	}
	if testClock(nil) != 0 || testClock([]byte("soon")) != 0 {
		t.Error("there is a clock where there is none")
	}
}
