package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// keyed is TLS made of keys that are named for the test.
func keyed(t testing.TB, names ...string) *TLS {
	t.Helper()
	var keys [][]byte
	for _, name := range names {
		keys = append(keys, bytes.Repeat([]byte(name), 32)[:32])
	}
	made, err := KeyTLS(keys)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func withTLS(made *TLS) func(*Config) { return func(c *Config) { c.TLS = made } }

// silent fails the test if the node's handler or Admit was told of more than it should.
type silent struct {
	t        *testing.T
	mu       sync.Mutex
	admitted []Hello
}

func (s *silent) watch(c *Config) {
	c.Admit = func(h Hello) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.admitted = append(s.admitted, h)
		return nil
	}
	c.Handler.(*host).call = func(context.Context, uint64, uint8, []byte) ([]byte, error) {
		s.t.Error("a stranger's call was answered")
		return nil, nil
	}
	c.Handler.(*host).stream = func(uint64, []byte, int64) (Sink, error) {
		s.t.Error("a stranger's file was taken")
		return nil, errors.New("no")
	}
}

func (s *silent) check(of *member) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.admitted) > 0 {
		s.t.Errorf("heard before the handshake: %+v", s.admitted)
	}
	if h := of.host; len(h.frames)+len(h.superseded)+len(h.goneOnes) > 0 {
		s.t.Errorf("%d frames, %d words of a copy, %d of an end were believed", len(h.frames), len(h.superseded), len(h.goneOnes))
	}
}

func TestKeyAdmitsOnlyThoseWhoHaveIt(t *testing.T) {
	addresses := newBook()
	b := start(t, addresses, loopback(t), helloOf(2), withTLS(keyed(t, "old", "new")))
	ctx := timeout(t)
	for i, good := range []*TLS{keyed(t, "old"), keyed(t, "old", "new"), keyed(t, "new", "old")} {
		m := start(t, addresses, loopback(t), helloOf(uint64(10+i)), withTLS(good))
		if got, err := m.Call(ctx, 2, 'x', []byte("y")); string(got) != "xy" || err != nil {
			t.Errorf("keys %d: %q, %v", i, got, err)
		}
		if _, _, err := b.CallAddr(ctx, m.addr, 1, nil); err != nil {
			t.Errorf("keys %d, dialled: %v", i, err)
		}
	}
	theirs := newAuthority(t)
	halfKeyed := keyed(t, "old") // it believes the node, and shows a certificate of another key
	halfKeyed.Client.Certificates = keyed(t, "another").Client.Certificates
	halfKeyed.Server.Certificates = halfKeyed.Client.Certificates
	for name, stranger := range map[string]struct {
		tls       *TLS
		explained string
	}{
		"another key":           {keyed(t, "another"), "it does not have this node's key"},
		"another's certificate": {halfKeyed, ""},
		"an authority":          {theirs.issue(t, theirs, time.Hour), ""},
		"no TLS":                {nil, onlyOverTLS},
	} {
		m := start(t, addresses, loopback(t), helloOf(3), withTLS(stranger.tls))
		for _, lane := range []Lane{LaneControl, LaneCall, LaneBulk, LaneOnce} {
			c, err := m.dial(ctx, b.addr, lane, 0, nil, newOutbox(1<<20))
			if err == nil {
				c.close(nil)
				t.Errorf("%s: %v is open", name, lane)
			} else if !strings.Contains(err.Error(), stranger.explained) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, _, err := b.CallAddr(ctx, m.addr, 1, nil)
		if !errors.Is(err, ErrNotSent) {
			t.Errorf("%s, dialled: %v", name, err)
		}
		if stranger.tls == nil && !strings.Contains(err.Error(), "speaks without it") {
			t.Errorf("%s, dialled: %v", name, err)
		}
	}
}

// TestStrangersReachNothing: nothing that a stranger sends to a node with a key gets behind the
// handshake: a hello in every link and in the node's own name, frames of every kind, a cut hello,
// and the recorded bytes of a node of the cluster.
func TestStrangersReachNothing(t *testing.T) {
	watch := &silent{t: t}
	addresses := newBook()
	b := start(t, addresses, loopback(t), helloOf(2), func(c *Config) {
		c.TLS = keyed(t, "k")
		watch.watch(c)
	})
	var inputs [][]byte
	for lane := range laneNames {
		for _, node := range []uint64{1, 2} {
			h := helloOf(node)
			h.Starts, h.Nonce = 99, 4242
			body, err := encodeHello(h)
			if err != nil {
				t.Fatal(err)
			}
			wire := greeting{protocolVersion, byte(lane), body}.encode()
			var sequence uint32
			for kind := byte(kindHeartbeat); kind <= kindEnd; kind++ {
				frame := appendFrame(nil, kind, nil, make([]byte, 32))
				sequence = seal(frame, sequence)
				wire = append(wire, frame...)
			}
			inputs = append(inputs, wire, wire[:len(wire)/2], wire[:helloHeaderBytes+3], wire[:5])
		}
	}
	recorded := recordHandshake(t, keyed(t, "k"))
	for cut := len(recorded); cut > 0; cut -= 97 {
		inputs = append(inputs, recorded[:cut])
	}
	var senders sync.WaitGroup
	for _, wire := range inputs {
		senders.Go(func() { drown(t, b.addr, wire) })
	}
	senders.Wait()
	watch.check(b)
}

// drown sends bytes, ends its side, and reads until the node has closed.
func drown(t *testing.T, addr string, wire []byte) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(handshakeLimit))
	_, _ = nc.Write(wire)
	_ = nc.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, nc)
}

// recordHandshake gives the bytes that a node of the cluster sends while it calls another: the same
// bytes again must be worth nothing.
func recordHandshake(t *testing.T, of *TLS) []byte {
	t.Helper()
	var mu sync.Mutex
	var sent []byte
	addresses := newBook()
	b := start(t, addresses, loopback(t), helloOf(2), withTLS(of))
	a := start(t, addresses, loopback(t), helloOf(1), func(c *Config) {
		c.TLS = of
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			return &tapped{nc, func(p []byte) {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, p...)
			}}, err
		}
	})
	if _, _, err := a.CallAddr(timeout(t), b.addr, 1, []byte("a call")); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(sent) < 500 {
		t.Fatalf("recorded %d bytes", len(sent))
	}
	return sent
}

type tapped struct {
	net.Conn
	tap func([]byte)
}

func (t *tapped) Write(b []byte) (int, error) {
	t.tap(b)
	return t.Conn.Write(b)
}

// TestUnprovenCopyEndsNobody: without TLS anybody can say that he is this node, started again. He
// is refused, and that is all.
func TestUnprovenCopyEndsNobody(t *testing.T) {
	b := start(t, newBook(), loopback(t), helloOf(2), nil)
	for lane := range laneNames {
		twin := helloOf(2)
		twin.Starts, twin.Nonce = 99, 4242
		body, err := encodeHello(twin)
		if err != nil {
			t.Fatal(err)
		}
		g, err := knock(t, b.addr, greeting{protocolVersion, byte(lane), body}.encode())
		if err != nil || g.what != refused || !strings.Contains(string(g.body), "exists twice") {
			t.Errorf("lane %d: %+v, %v", lane, g, err)
		}
	}
	if len(b.host.superseded) > 0 {
		t.Error("a stranger's word ends the process")
	}
}

// TestKeysChangeWhileNodesSpeak: the new key goes behind the old one on every node, then before it,
// then the old one goes. At no step is a node that was changed cut off from one that was not.
func TestKeysChangeWhileNodesSpeak(t *testing.T) {
	addresses := newBook()
	a := start(t, addresses, loopback(t), helloOf(1), withTLS(keyed(t, "old")))
	b := start(t, addresses, loopback(t), helloOf(2), withTLS(keyed(t, "old")))
	ctx := timeout(t)
	speak := func(when string) {
		t.Helper()
		for from, to := range map[*member]*member{a: b, b: a} { // each time over a new connection
			if _, _, err := from.CallAddr(ctx, to.addr, 1, nil); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
	}
	speak("before")
	for _, keys := range [][]string{{"old", "new"}, {"new", "old"}, {"new"}} {
		for _, m := range []*member{a, b} {
			if err := m.UseTLS(keyed(t, keys...)); err != nil {
				t.Fatal(err)
			}
			speak(strings.Join(keys, ", "))
		}
	}
	if stale := start(t, addresses, loopback(t), helloOf(3), withTLS(keyed(t, "old"))); true {
		if _, _, err := stale.CallAddr(ctx, a.addr, 1, nil); !errors.Is(err, ErrNotSent) {
			t.Errorf("the old key still counts: %v", err)
		}
	}
	if a.UseTLS(nil) == nil {
		t.Error("a running node gives TLS up")
	}
}

func TestNobodyDialsWithoutAListener(t *testing.T) {
	b := start(t, newBook(), loopback(t), helloOf(2), nil)
	alone := &member{host: newHost(), hello: helloOf(1)}
	tr, err := New(Config{
		Self: func() Hello { return alone.hello }, Address: func(uint64) string { return b.addr },
		Admit: func(Hello) error { return nil }, Handler: alone.host,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tr.Run(ctx, nil) }()
	for deadline := timeout(t); ; {
		// Until Run has begun.
		if _, err = tr.Call(deadline, 2, 'x', nil); !errors.Is(err, errStopped) {
			break
		}
		runtime.Gosched()
	}
	if err != nil {
		t.Errorf("it cannot call either: %v", err)
	}
	stop()
	if err := within(t, "end", ended); err != nil {
		t.Error(err)
	}
}

// FuzzHandshake gives a node's end of a new connection any bytes, without and with a key. It must
// end, must not believe a word about its own identity, and with a key must not ask anybody whether
// to admit the node of the hello.
func FuzzHandshake(f *testing.F) {
	self := helloOf(2)
	for _, node := range []uint64{1, 2} {
		body, _ := encodeHello(Hello{Cluster: "c1", Node: node, Name: "n", Starts: 99, Nonce: 4242})
		f.Add(greeting{protocolVersion, byte(LaneControl), body}.encode())
		f.Add(greeting{protocolVersion, byte(LaneOnce), body}.encode())
	}
	f.Add([]byte{22, 3, 1, 0, 5, 1, 0, 0, 1, 0}) // a TLS record
	ends := func(made *TLS) (*Transport, *host, *int) {
		h, admitted := newHost(), new(int)
		tr, err := New(Config{
			Self: func() Hello { return self }, Address: func(uint64) string { return "" }, Handler: h, TLS: made,
			Admit: func(Hello) error { *admitted++; return nil }, HandshakeTimeout: 5 * time.Second,
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { tr.cancel(errStopped) })
		return tr, h, admitted
	}
	open, openHost, _ := ends(nil)
	closed, closedHost, admitted := ends(keyed(f, "k"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		for _, tr := range []*Transport{open, closed} {
			ours, theirs := net.Pipe()
			var side sync.WaitGroup
			side.Go(func() { _, _ = io.Copy(io.Discard, theirs) })
			side.Go(func() {
				_, _ = theirs.Write(wire)
				theirs.Close()
			})
			if nc, h, err := tr.serverHandshake(ours); err == nil {
				nc.Close()
				tr.Forget(h.Node)
			}
			ours.Close()
			side.Wait()
		}
		if len(openHost.superseded)+len(closedHost.superseded)+*admitted > 0 {
			t.Fatal("a stranger's word was believed")
		}
	})
}
