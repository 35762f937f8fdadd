package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon/test/freeport"
)

// healthyLimit bounds the p99 lateness of a healthy receiver beside a hostile one. The aim is 50
// ms. The bound is for a busy machine, and still far less than a wait for a hanging call.
const healthyLimit = 300 * time.Millisecond

// rawReceiver passes each connection to serve, which may misbehave in any way.
func rawReceiver(t testing.TB, serve func(net.Conn)) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []net.Conn
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			all = append(all, conn)
			mu.Unlock()
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range all {
			conn.Close()
		}
	})
	return "http://" + listener.Addr().String() + "/"
}

// takeRequest reads one whole request.
func takeRequest(conn net.Conn) bool {
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, r.Body)
	return err == nil
}

// drip writes a byte a second until a write fails.
func drip(conn net.Conn, text string) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := 0; ; i = (i + 1) % len(text) {
		if _, err := conn.Write([]byte{text[i]}); err != nil {
			return
		}
		<-tick.C
	}
}

func answering(text string) func(net.Conn) {
	return func(conn net.Conn) {
		for takeRequest(conn) {
			if _, err := io.WriteString(conn, text); err != nil {
				return
			}
		}
	}
}

// hostile is a bad receiver and the expected end of its timers.
type hostile struct {
	name   string
	timers int
	serve  func(net.Conn) // nil: nothing listens
	want   timer          // State, Reason, Attempts, LastStatus, LastError
}

var twice = timer{State: "dead", Reason: "max_attempts", Attempts: 2}

func (w timer) status(n int) timer { w.LastStatus = n; return w }

func (w timer) fault(text string) timer { w.LastError = text; return w }

var hostiles = []hostile{
	{"refuses", 20, nil, twice.fault("connection refused")},
	{"hangs", 400, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, twice.fault("timeout")},
	{"resets", 20, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.(*net.TCPConn).SetLinger(0)
	}, twice.fault("connection reset")},
	{"accepts and closes", 20, func(c net.Conn) {}, twice.fault("connection ")}, // closed or reset
	{"answers garbage", 20, answering("SSH-2.0-OpenSSH_9.6\r\n\r\n"), twice.fault("bad response")},
	{"drips its headers", 50, func(c net.Conn) {
		if takeRequest(c) {
			drip(c, "HTTP/1.1 200 OK\r\nX-Slow: yes\r\n")
		}
	}, twice.fault("timeout")},
	{"has huge headers", 20, answering("HTTP/1.1 200 OK\r\nX-Big: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"), timer{State: "done", Attempts: 1, LastStatus: 200}},
	{"ends lines with LF alone", 20, answering("HTTP/1.1 200 OK\nContent-Length: 2\n\nok"), timer{State: "done", Attempts: 1, LastStatus: 200}},
	{"never ends its headers", 20, func(c net.Conn) {
		if takeRequest(c) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for {
				if _, err := io.WriteString(c, "X-More: "+strings.Repeat("y", 1000)+"\r\n"); err != nil {
					return
				}
			}
		}
	}, timer{State: "done", Attempts: 1, LastStatus: 200}},
	{"sends a huge body", 20, func(c net.Conn) {
		if takeRequest(c) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")
			block := make([]byte, 1<<16)
			for {
				if _, err := c.Write(block); err != nil {
					return
				}
			}
		}
	}, timer{State: "done", Attempts: 1, LastStatus: 200}},
	{"drips its body", 50, func(c net.Conn) {
		if takeRequest(c) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
			drip(c, "zzz")
		}
	}, timer{State: "done", Attempts: 1, LastStatus: 200}},
	{"says 000", 20, answering("HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n"), twice.fault("bad response")},
	{"says 204 and sends an answer behind it", 20, answering("HTTP/1.1 204 X\r\nContent-Length: 38\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
		timer{State: "done", Attempts: 1, LastStatus: 204}},
	{"answers twice", 20, answering("HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), twice.status(503)},
	{"redirects", 20, answering("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"), twice.status(302)},
	{"says 500", 20, answering("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"), twice.status(500)},
	{"is gone", 20, answering("HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"), timer{State: "dead", Reason: "stopped", Attempts: 1, LastStatus: 410}},
	{"sends interim answers for ever", 20, func(c net.Conn) {
		if takeRequest(c) {
			for {
				if _, err := io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
					return
				}
			}
		}
	}, twice.fault("bad response")},
}

// impatient is a policy with two attempts in quick succession and a breaker that does not open.
const impatient = `{"callback":{"url":%q,"timeout":"500ms"},
	"retry":{"max_attempts":2,"min_backoff":"200ms","max_backoff":"200ms","multiplier":1,"jitter":0},
	"breaker":{"failures":10000,"window":"10s","open":"5s","probes":1}}`

// TestHostileReceivers sends timers to each kind of bad receiver. A healthy receiver beside it must
// not notice.
func TestHostileReceivers(t *testing.T) {
	for _, h := range hostiles {
		t.Run(strings.ReplaceAll(h.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			url := "http://" + freeport.Address(t) + "/"
			if h.serve != nil {
				url = rawReceiver(t, h.serve)
			}
			node := serve(t, t.TempDir())
			c := newClient(node)
			c.must(t, 201, "PUT", "/v1/topics/bad", fmt.Sprintf(impatient, url))
			healthy := beginHealthy(t, c)
			wait(100 * time.Millisecond)
			for i := range h.timers {
				c.must(t, 201, "POST", "/v1/topics/bad/timers", fmt.Sprintf(`{"id":"b%d","delay_ms":0,"payload":"x"}`, i))
			}
			poll(t, patience, "all have ended", func() bool {
				var page struct{ Timers []timer }
				c.must(t, 200, "GET", "/v1/topics/bad/timers?limit=1", "").decode(t, &page)
				return len(page.Timers) == 0
			})
			late := healthy.end(t)
			ended := c.all(t, "bad")
			if len(ended) != h.timers {
				t.Errorf("%d of %d timers are still known", len(ended), h.timers)
			}
			wrong := 0
			for _, got := range ended {
				if !got.endedAs(h.want) && wrong < 5 {
					wrong++
					t.Errorf("%s: %s %s, %d attempts, status %d, error %q; want %+v",
						got.ID, got.State, got.Reason, got.Attempts, got.LastStatus, got.LastError, h.want)
				}
			}
			t.Logf("healthy beside one that %s: %d timers, lateness %v", h.name, len(late), spreadOf(late))
		})
	}
}

func (w timer) endedAs(want timer) bool {
	return w.State == want.State && w.Reason == want.Reason && w.Attempts == want.Attempts && w.LastStatus == want.LastStatus &&
		(want.LastError == "" || strings.HasPrefix(w.LastError, want.LastError))
}

// healthy is a steady flow of timers to a good receiver, with its own topic and logs.
type healthy struct {
	client *client
	topic  string
	begun  time.Time
	rcv    *receiver
	book   *ledger
	stop   chan struct{}
	done   sync.WaitGroup
	failed atomic.Int64
}

func beginHealthy(t testing.TB, c *client) *healthy { t.Helper(); return beginHealthyAs(t, c, "well") }

func beginHealthyAs(t testing.TB, c *client, topic string) *healthy {
	t.Helper()
	h := &healthy{client: c, topic: topic, begun: time.Now(), rcv: newReceiver(t, nil), book: newLedger(), stop: make(chan struct{})}
	c.topic(t, topic, h.rcv.url(), "")
	h.done.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-h.stop:
				return
			case <-tick.C:
			}
			id, due := fmt.Sprintf("w%d", n), time.Now().UnixMilli()+30
			e := h.book.add(id, 0)
			a := c.do("POST", "/v1/topics/"+topic+"/timers", fmt.Sprintf(`{"id":%q,"at_ms":%d,"payload":%d}`, id, due, n))
			if h.book.wrote(e, fmt.Sprint(n), due, a) != acked {
				h.failed.Add(1)
			}
		}
	})
	return h
}

// end stops the flow, checks it, and returns its latenesses. If they are above the limit, the
// yardstick is another such flow, as long, when the trouble is over: a busy machine delays both.
func (h *healthy) end(t testing.TB) []time.Duration {
	t.Helper()
	lasted := time.Since(h.begun)
	late := h.latenesses(t)
	if s := spreadOf(late); s.p99 > healthyLimit {
		quiet := beginHealthyAs(t, h.client, h.topic+".quiet")
		wait(lasted)
		if q := spreadOf(quiet.latenesses(t)); s.p99 > 2*q.p99 {
			t.Errorf("the healthy receiver noticed: lateness %v, %d timers; later, when all was quiet, %v", s, len(late), q)
		}
	}
	return late
}

// latenesses stops and checks the flow. It leaves out timers whose add was answered after their due
// time, because the client was late for those.
func (h *healthy) latenesses(t testing.TB) []time.Duration {
	t.Helper()
	close(h.stop)
	h.done.Wait()
	if n := h.failed.Load(); n > 0 {
		t.Errorf("%d adds of the healthy flow failed", n)
	}
	poll(t, patience, "the healthy flow is delivered", func() bool { return h.rcv.answered() >= h.book.size() })
	v := &verdict{ledger: h.book, log: h.rcv.arrivals()}
	v.check(t)
	var late []time.Duration
	for _, a := range v.log {
		if h.book.byID[a.timer].versions[0].answered.UnixMilli() < a.dueMs {
			late = append(late, a.lateness())
		}
	}
	return late
}
