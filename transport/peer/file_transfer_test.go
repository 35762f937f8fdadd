package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// shelf keeps the files of a test, by header, and the parts that broken transfers left.
type shelf struct {
	mu       sync.Mutex
	parts    map[string][]byte
	whole    map[string][]byte
	open     int // now
	mostOpen int
	begun    []int64 // where each transfer began
	write    func(at int) error
	commit   func() error
	closed   chan struct{} // each Close
}

func newShelf() *shelf {
	return &shelf{parts: map[string][]byte{}, whole: map[string][]byte{}, closed: make(chan struct{}, 1000)}
}

func (s *shelf) receive(c *Config) {
	c.Handler.(*host).stream = func(from uint64, header []byte, size int64) (Sink, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if string(header) == "forbidden" {
			return nil, codedError{}
		}
		s.open++
		s.mostOpen = max(s.mostOpen, s.open)
		s.begun = append(s.begun, int64(len(s.parts[string(header)])))
		return &shelfSink{s, string(header)}, nil
	}
}

type shelfSink struct {
	*shelf
	header string
}

func (s *shelfSink) Have() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.parts[s.header]))
}

func (s *shelfSink) Write(chunk []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.write != nil {
		if err := s.write(len(s.parts[s.header])); err != nil {
			return err
		}
	}
	s.parts[s.header] = append(s.parts[s.header], chunk...)
	return nil
}

func (s *shelfSink) Commit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commit != nil {
		if err := s.commit(); err != nil {
			return err
		}
	}
	s.whole[s.header] = s.parts[s.header]
	delete(s.parts, s.header)
	return nil
}

func (s *shelfSink) Close() {
	s.mu.Lock()
	s.open--
	s.mu.Unlock()
	s.closed <- struct{}{}
}

func (s *shelf) got(header string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole[header]
}

func someBytes(n int) []byte {
	b := make([]byte, n)
	source := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = source.Read(b)
	return b
}

func TestFilesArriveWhole(t *testing.T) {
	s := newShelf()
	a, _ := pair(t, s.receive)
	for _, size := range []int{0, 1, bulkChunkBytes, bulkChunkBytes + 1, 5_000_000} {
		header, body := []byte{byte(size), byte(size >> 8), 'h'}, someBytes(size)
		if err := a.SendFile(timeout(t), 2, header, bytes.NewReader(body), int64(size)); err != nil {
			t.Fatal(size, err)
		}
		if !bytes.Equal(s.got(string(header)), body) {
			t.Errorf("%d bytes arrived as %d", size, len(s.got(string(header))))
		}
		within(t, "close", s.closed)
	}
}

func TestFileGoesOnWhereItBroke(t *testing.T) {
	s := newShelf()
	half := make(chan struct{})
	s.write = func(at int) error {
		if at >= 1_000_000 {
			select {
			case <-half:
			default:
				close(half)
			}
		}
		return nil
	}
	a, _ := pair(t, s.receive)
	body := someBytes(5_000_000)
	ctx, cancel := context.WithCancel(timeout(t))
	result := make(chan error, 1)
	stopping := &stopReader{ReaderAt: bytes.NewReader(body), at: 2_000_000, resume: make(chan struct{})}
	go func() { result <- a.SendFile(ctx, 2, []byte("f"), stopping, int64(len(body))) }()
	within(t, "first million", half)
	cancel()
	close(stopping.resume)
	if err := within(t, "result", result); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	within(t, "close", s.closed)
	if err := a.SendFile(timeout(t), 2, []byte("f"), bytes.NewReader(body), int64(len(body))); err != nil {
		t.Fatal(err)
	}
	if len(s.begun) != 2 || s.begun[0] != 0 || s.begun[1] < 1_000_000 {
		t.Errorf("began at %v", s.begun)
	}
	if !bytes.Equal(s.got("f"), body) {
		t.Error("the file differs")
	}
}

// stopReader waits at an offset.
type stopReader struct {
	io.ReaderAt
	at     int64
	resume chan struct{}
}

func (r *stopReader) ReadAt(b []byte, at int64) (int, error) {
	if at >= r.at {
		<-r.resume
	}
	return r.ReaderAt.ReadAt(b, at)
}

func TestFileErrors(t *testing.T) {
	s := newShelf()
	a, _ := pair(t, s.receive)
	ctx := timeout(t)
	body := someBytes(300_000)
	send := func(header string, size int64) error {
		return a.SendFile(ctx, 2, []byte(header), bytes.NewReader(body), size)
	}
	var remote *RemoteError
	if err := send("forbidden", 1000); !errors.As(err, &remote) || remote.Code != 7 {
		t.Errorf("refused: %v", err)
	}
	if err := send("short", 400_000); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file shorter than said: %v", err)
	}
	within(t, "close", s.closed)
	s.parts["long"] = make([]byte, 2000)
	if err := send("long", 1000); !errors.As(err, &remote) {
		t.Errorf("more there than there is: %v", err)
	}
	within(t, "close", s.closed)
	s.write = func(int) error { return errors.New("disk full") }
	if err := send("full", 300_000); !errors.As(err, &remote) || remote.Text != "disk full" {
		t.Errorf("write: %v", err)
	}
	within(t, "close", s.closed)
	s.write, s.commit = nil, func() error { return errors.New("not a snapshot") }
	if err := send("odd", 300_000); !errors.As(err, &remote) || remote.Text != "not a snapshot" {
		t.Errorf("commit: %v", err)
	}
	within(t, "close", s.closed)
	if err := a.SendFile(ctx, 99, nil, bytes.NewReader(nil), 0); !errors.Is(err, ErrNotSent) {
		t.Errorf("nobody: %v", err)
	}
	if len(s.whole) != 0 || s.open != 0 {
		t.Errorf("%d files, %d open", len(s.whole), s.open)
	}
}

func TestOneFileAtATime(t *testing.T) {
	s := newShelf()
	a, _ := pair(t, s.receive)
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			body := someBytes(200_000 + i)
			if err := a.SendFile(timeout(t), 2, []byte{byte(i)}, bytes.NewReader(body), int64(len(body))); err != nil {
				t.Error(err)
			}
			if !bytes.Equal(s.got(string([]byte{byte(i)})), body) {
				t.Errorf("file %d differs", i)
			}
		})
	}
	wait.Wait()
	if s.mostOpen != 1 {
		t.Errorf("%d at once", s.mostOpen)
	}
}

// On a fake clock a file takes as long as its bytes are worth, and a commit may take long.
func TestFilesAreThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newMemory(), newShelf()
		s.commit = func() error { <-time.After(20 * time.Second); return nil }
		a, b := memoryPair(t, m, func(c *Config) { s.receive(c); c.BulkBytesPerSecond = 1 << 20 })
		began := time.Now()
		if err := a.SendFile(context.Background(), 2, []byte("f"), bytes.NewReader(make([]byte, 10<<20)), 10<<20); err != nil {
			t.Error(err)
		}
		if took := time.Since(began) - 20*time.Second; took < 9*time.Second || took > 11*time.Second {
			t.Errorf("10 MiB at 1 MiB/s took %v", took)
		}
		a.stop()
		b.stop()
	})
}

// TestNodesKeepToTheirRates: six nodes send files to one, and one of them to all the others
// besides. No node sends or receives more than its rate in any window, and no file starves: all
// advance alike.
func TestNodesKeepToTheirRates(t *testing.T) {
	const rate, size, senders = 1 << 20, 4 << 20, 6
	synctest.Test(t, func(t *testing.T) {
		m, addresses := newMemory(), newBook()
		var mu sync.Mutex
		type piece struct {
			at    time.Time
			bytes int
		}
		in, out, by := map[uint64][]piece{}, map[uint64][]piece{}, map[uint64]int{}
		var members []*member
		for node := uint64(1); node <= senders+1; node++ {
			members = append(members, start(t, addresses, m.listen(string(rune('a'+node))), helloOf(node), func(c *Config) {
				c.Dial, c.BulkBytesPerSecond = m.dial, rate
				c.Handler.(*host).stream = func(from uint64, _ []byte, _ int64) (Sink, error) {
					return countingSink{func(n int) {
						mu.Lock()
						defer mu.Unlock()
						in[node] = append(in[node], piece{time.Now(), n})
						out[from] = append(out[from], piece{time.Now(), n})
						if node == senders+1 {
							by[from] += n
						}
					}}, nil
				}
			}))
		}
		began := time.Now()
		var files sync.WaitGroup
		send := func(from, to uint64) {
			files.Go(func() {
				if err := members[from-1].SendFile(context.Background(), to, []byte("f"), bytes.NewReader(make([]byte, size)), size); err != nil {
					t.Error(err)
				}
			})
		}
		for node := uint64(1); node <= senders; node++ {
			send(node, senders+1)
			if node > 1 {
				send(1, node)
			}
		}
		time.Sleep(12 * time.Second)
		mu.Lock()
		for node, n := range by { // 12 MiB in all; the first node has five other files to send
			if n < 3<<19 && node > 1 || n < 1<<19 {
				t.Errorf("node %d has brought only %d bytes in twelve seconds", node, n)
			}
		}
		mu.Unlock()
		files.Wait()
		if took := time.Since(began); took > 27*time.Second {
			t.Errorf("it took %v, a node has 24 s of bytes to receive and another to send", took)
		}
		for name, nodes := range map[string]map[uint64][]piece{"receives": in, "sends": out} {
			for node, pieces := range nodes {
				slices.SortFunc(pieces, func(a, b piece) int { return a.at.Compare(b.at) })
				for _, window := range []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second} {
					sum, first := 0, 0
					for i := range pieces {
						sum += pieces[i].bytes
						for ; pieces[i].at.Sub(pieces[first].at) >= window; first++ {
							sum -= pieces[first].bytes
						}
						// What was read ahead: a pipe and a queue for each file.
						if most := int(rate*window.Seconds()) + rate/100 + (1+senders)*bulkChunkBytes; sum > most {
							t.Fatalf("node %d %s %d bytes within %v, at most %d should be", node, name, sum, window, most)
						}
					}
				}
			}
		}
		for _, n := range members {
			n.stop()
		}
	})
}

// countingSink takes a file and keeps nothing.
type countingSink struct{ wrote func(int) }

func (countingSink) Have() int64            { return 0 }
func (s countingSink) Write(b []byte) error { s.wrote(len(b)); return nil }
func (countingSink) Commit() error          { return nil }
func (countingSink) Close()                 {}

func TestDamagedFileIsNotWritten(t *testing.T) {
	s := newShelf()
	_, b := pair(t, s.receive)
	open := testFrame{kindOpen, "\x06\x00\x00\x00\x00\x00\x00\x00f"}
	flipped := sealed(open, testFrame{kindChunk, "abcdef"})
	flipped[len(flipped)-1] ^= 1
	for name, wire := range map[string][]byte{
		"bad checksum":  flipped,
		"more than all": sealed(open, testFrame{kindChunk, "abcdefg"}),
		"opened twice":  sealed(open, open),
		"negative size": sealed(testFrame{kindOpen, "\xff\xff\xff\xff\xff\xff\xff\xfff"}),
		"chunk first":   sealed(testFrame{kindChunk, "abcdef"}),
	} {
		var nc net.Conn = shake(t, b.addr, helloOf(7), LaneBulk)
		if _, err := nc.Write(wire); err != nil {
			t.Fatal(name, err)
		}
		closed(t, nc)
	}
	b.stop()
	if len(s.whole)+len(s.parts) != 0 || s.open != 0 {
		t.Errorf("%d whole, %d parts, %d open", len(s.whole), len(s.parts), s.open)
	}
}
