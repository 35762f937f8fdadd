package callback

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/transport/callback/address"

	"go.uber.org/goleak"
)

// TestMain looks for goroutines left behind, except after benchmarks: fasthttp's server and bare
// client, which only those use, keep some for ever.
func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

// local admits loopback, as a node does whose own API is on loopback.
var local = address.Policy{AllowPrivate: true}

// startPool runs a pool until the test ends and checks that it ends clean.
func startPool(t testing.TB, config Config) *Pool {
	t.Helper()
	p := New(config)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return p
}

// receiver is a TCP server that treats every connection as its script says.
type receiver struct {
	url    string
	listen net.Listener
	wait   sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	seen  int // connections
}

// receive serves each connection with script, which may block until stop is closed.
// The connection is closed when it returns.
func receive(t testing.TB, script func(c net.Conn, in *bufio.Reader)) *receiver {
	t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{url: "http://" + listen.Addr().String(), listen: listen}
	r.wait.Go(func() {
		for {
			c, err := listen.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.conns = append(r.conns, c)
			r.seen++
			r.mu.Unlock()
			r.wait.Go(func() {
				defer c.Close()
				script(c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(r.stop)
	return r
}

func (r *receiver) stop() {
	r.listen.Close()
	r.mu.Lock()
	for _, c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.wait.Wait()
}

func (r *receiver) connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// readRequest reads one request with its body.
func readRequest(in *bufio.Reader) (*http.Request, []byte, error) {
	req, err := http.ReadRequest(in)
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(req.Body)
	return req, body, err
}

// always answers every request on the connection with the same bytes.
func always(answer string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, in *bufio.Reader) {
		for {
			if _, _, err := readRequest(in); err != nil {
				return
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	}
}

// hang reads and never answers, until the connection is closed.
func hang(_ net.Conn, in *bufio.Reader) { _, _ = io.Copy(io.Discard, in) }

const answer200 = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func answerOf(status int) string {
	return fmt.Sprintf("HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n", status)
}

// waiter collects its grants.
// waiter waits at a destination, or for a slot of the node.
type waiter struct {
	granted chan Permit
	refused chan time.Time
	credits chan delivery.Credit
}

func newWaiter() *waiter {
	return &waiter{make(chan Permit, 1), make(chan time.Time, 1), make(chan delivery.Credit, delivery.Classes)}
}

func (w *waiter) Granted(p delivery.Permit)            { w.granted <- p.(Permit) }
func (w *waiter) Refused(retryIn time.Duration)        { w.refused <- time.Now().Add(retryIn) }
func (w *waiter) GrantedSlot(_ int, c delivery.Credit) { w.credits <- c }

func acquire(p *Pool, c Call, w *waiter) (Permit, delivery.Verdict) {
	return p.Acquire(c, delivery.Ask{Receiver: w, Node: w})
}

// await acquires a permit however long it takes; false: the pool was shut down.
func await(p *Pool, c Call, w *waiter) (Permit, bool) {
	a := delivery.Ask{Receiver: w, Node: w}
	for {
		permit, v := p.Acquire(c, a)
		if a.Credit != nil && v.Kind != delivery.Granted {
			a.Credit.Cancel()
		}
		a.Credit = nil
		switch v.Kind {
		case delivery.Granted:
			return permit, true
		case delivery.Closed:
			return permit, false
		case delivery.Shut:
			<-time.After(v.RetryIn)
		case delivery.NodeFull:
			a.Credit = <-w.credits
		case delivery.ReceiverFull:
			select {
			case permit = <-w.granted:
				return permit, true
			case retryAt := <-w.refused:
				<-time.After(time.Until(retryAt))
			}
		}
	}
}

func keyOf(t testing.TB, u string) address.Key {
	t.Helper()
	k, err := address.ParseKey(u)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// begin acquires and starts one call, failing the test unless it is granted at once.
func begin(t testing.TB, p *Pool, req *Request) <-chan Outcome {
	t.Helper()
	permit, verdict := acquire(p, Call{Key: keyOf(t, req.URL), Breaker: Breaker{Failures: 1000}}, newWaiter())
	if verdict.Kind != delivery.Granted {
		t.Fatalf("verdict %+v, want a permit", verdict)
	}
	out := make(chan Outcome, 1)
	permit.Start(req, func(o Outcome) { out <- o })
	return out
}

func callOnce(t testing.TB, p *Pool, req *Request) Outcome {
	t.Helper()
	return <-begin(t, p, req)
}

// patience is how long a test waits, on a machine however busy, for what comes at once on another.
const patience = time.Minute

func post(url string) *Request {
	return &Request{
		URL: url, Body: []byte(`{"order":77}`), ContentType: "application/json",
		Timeout: patience, Topic: "orders", Timer: "{order-77}close", DueMs: 1_700_000_000_000,
		Attempt: 1, Fence: 7, WebhookID: "msg_1",
	}
}

// memory is a network of in-memory pipes, for tests on a fake clock.
type memory struct {
	serve func(c net.Conn, in *bufio.Reader)
	wait  sync.WaitGroup
	fail  error // of every dial, when set
	dials atomic.Int32
}

var errNoRoute = errors.New("no route")

func (m *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if m.fail != nil {
		return nil, m.fail
	}
	m.dials.Add(1)
	ours, theirs := net.Pipe()
	m.wait.Go(func() {
		defer theirs.Close()
		m.serve(theirs, bufio.NewReader(theirs))
	})
	return ours, nil
}
