package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"carillon/internal/feature"
	"carillon/test/testkit"
)

// The parts of the dialogues between node 1, which dials, and node 2. Each is what one side writes,
// and goes through no encoder of calls or files.
func dialogueParts() map[string][]byte {
	hello := func(node uint64) []byte {
		body, err := encodeHello(helloOf(node))
		if err != nil {
			panic(err)
		}
		return body
	}
	const one = "\x01\x00\x00\x00\x00\x00\x00\x00" // a u64
	return map[string][]byte{
		"control hello": greeting{protocolVersion, byte(LaneControl), hello(1)}.encode(),
		"call hello":    greeting{protocolVersion, byte(LaneCall), hello(1)}.encode(),
		"bulk hello":    greeting{protocolVersion, byte(LaneBulk), hello(1)}.encode(),
		"once hello":    greeting{protocolVersion, byte(LaneOnce), hello(1)}.encode(),
		"welcome":       greeting{protocolVersion, welcome, hello(2)}.encode(),
		"refused":       greeting{protocolVersion, refused, []byte("node 1 is not a member")}.encode(),
		"yourself":      greeting{protocolVersion, yourself, nil}.encode(),
		"frames":        sealed(testFrame{kindFrame, "a frame"}, testFrame{kindFrame, "another"}),
		"heartbeat":     sealed(testFrame{kindHeartbeat, ""}),
		"call":          sealed(testFrame{kindCall, one + "\x00\x00\x00\x00\x11" + "a body"}),
		"timed call":    sealed(testFrame{kindCall, one + "\xe8\x03\x00\x00\x11" + "a body"}),
		"reply":         sealed(testFrame{kindReply, one + "\x00\x00" + "an answer"}),
		"fault":         sealed(testFrame{kindReply, one + "\x01\x07" + "not the leader"}),
		"file":          sealed(testFrame{kindOpen, "\x07\x00\x00\x00\x00\x00\x00\x00" + "a header"}, testFrame{kindChunk, "content"}),
		"file taken":    sealed(testFrame{kindHave, "\x00\x00\x00\x00\x00\x00\x00\x00"}, testFrame{kindEnd, "\x00\x00"}),
	}
}

// TestWireOfReleases: this build reads greetings and frames as each release so far wrote them, and
// writes them as the last release did.
func TestWireOfReleases(t *testing.T) {
	messages := map[string]testkit.Message{}
	for name, part := range dialogueParts() {
		read := func(b []byte) error {
			frames, err := readAll(bytes.NewReader(b), 1<<10)
			if !errors.Is(err, io.EOF) {
				return err
			}
			if again := sealed(frames...); !bytes.Equal(again, b) {
				return fmt.Errorf("it is read as %q", frames)
			}
			return nil
		}
		if strings.HasSuffix(name, "hello") || name == "welcome" {
			read = func(b []byte) error {
				g, err := readGreeting(bytes.NewReader(b))
				if err != nil {
					return err
				}
				h, err := decodeHello(g.body)
				if err == nil && h != helloOf(h.Node) {
					err = fmt.Errorf("it is read as %+v", h)
				}
				return err
			}
		} else if name == "refused" || name == "yourself" {
			read = func(b []byte) error { _, err := readGreeting(bytes.NewReader(b)); return err }
		}
		messages[name] = testkit.Message{Bytes: part, Read: read}
	}
	testkit.WireOfReleases(t, int(feature.LevelOfBuild), messages)
}

// part is one of the parts, or the first frame of one (open, have), or what is behind that.
func part(name string) []byte {
	parts := dialogueParts()
	open, have := frameHeaderBytes+len("12345678a header"), frameHeaderBytes+len("12345678")
	switch name {
	case "open":
		return parts["file"][:open]
	case "chunk":
		return parts["file"][open:]
	case "have":
		return parts["file taken"][:have]
	case "end":
		return parts["file taken"][have:]
	}
	return parts[name]
}

// quietly makes a node send no heartbeat during a dialogue.
func quietly(c *Config) { c.Heartbeat = handshakeLimit / 2 }

// receives reads as many bytes as it should, and compares.
func receives(t *testing.T, nc net.Conn, name string) {
	t.Helper()
	want := part(name)
	got := make([]byte, len(want))
	if n, err := io.ReadFull(nc, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %v\n%x\nwant\n%x", name, err, got[:n], want)
	}
}

func sends(t *testing.T, nc net.Conn, name string) {
	t.Helper()
	if _, err := nc.Write(part(name)); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// TestDiallerOfARelease: a node answers one of a release, whose words are fixed, with fixed words.
func TestDiallerOfARelease(t *testing.T) {
	files := newShelf()
	b := start(t, newBook(), loopback(t), helloOf(2), func(c *Config) {
		quietly(c)
		files.receive(c)
		c.Handler.(*host).call = func(ctx context.Context, from uint64, method uint8, body []byte) ([]byte, error) {
			if _, timed := ctx.Deadline(); timed {
				return nil, codedError{}
			}
			if from != 1 || method != 17 || string(body) != "a body" {
				return nil, fmt.Errorf("node %d, method %d, %q", from, method, body)
			}
			return []byte("an answer"), nil
		}
	})
	for _, dialogue := range [][]string{
		{"call hello", "welcome", "call", "reply"},
		{"once hello", "welcome", "timed call", "fault"},
		{"bulk hello", "welcome", "open", "have", "chunk", "end"},
		{"control hello", "welcome", "frames"},
	} {
		nc, err := net.Dial("tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(handshakeLimit))
		for i, part := range dialogue {
			if i%2 == 0 {
				sends(t, nc, part)
			} else {
				receives(t, nc, part)
			}
		}
		if dialogue[0] == "control hello" {
			for _, want := range []string{"a frame", "another"} {
				if got := within(t, "frame", b.host.frames); got != (received{1, want}) {
					t.Errorf("got %v, want %q", got, want)
				}
			}
		}
		nc.Close()
	}
	if got := string(files.got("a header")); got != "content" {
		t.Errorf("the file is %q", got)
	}
}

// TestListenerOfARelease: a node dials one of a release, whose words are fixed, with fixed words.
func TestListenerOfARelease(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, d := range []struct {
		parts []string
		ask   func(a *member) error
	}{
		{[]string{"call hello", "welcome", "call", "reply"}, func(a *member) error {
			got, err := a.Call(ctx, 2, 17, []byte("a body"))
			if err == nil && string(got) != "an answer" {
				err = fmt.Errorf("answered %q", got)
			}
			return err
		}},
		{[]string{"call hello", "welcome", "call", "fault"}, func(a *member) error {
			var remote *RemoteError
			if _, err := a.Call(ctx, 2, 17, []byte("a body")); !errors.As(err, &remote) || *remote != (RemoteError{7, "not the leader"}) {
				return fmt.Errorf("answered %w", err)
			}
			return nil
		}},
		{[]string{"once hello", "refused"}, func(a *member) error {
			if _, _, err := a.CallAddr(ctx, a.config.Address(2), 17, nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "node 1 is not a member") {
				return fmt.Errorf("answered %w", err)
			}
			return nil
		}},
		{[]string{"once hello", "yourself"}, func(a *member) error {
			if _, _, err := a.CallAddr(ctx, a.config.Address(2), 17, nil); !errors.Is(err, ErrSelf) {
				return fmt.Errorf("answered %w", err)
			}
			return nil
		}},
		{[]string{"bulk hello", "welcome", "open", "have", "chunk", "end"}, func(a *member) error {
			return a.SendFile(ctx, 2, []byte("a header"), strings.NewReader("content"), 7)
		}},
		{[]string{"control hello", "welcome", "frames"}, func(a *member) error {
			a.Send(2, []byte("a frame"))
			a.Send(2, []byte("another"))
			return nil
		}},
	} {
		ln, addresses := loopback(t), newBook()
		addresses.set(2, ln.Addr().String())
		a := start(t, addresses, loopback(t), helloOf(1), quietly)
		asked := make(chan error, 1)
		go func() { asked <- d.ask(a) }()
		nc, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(handshakeLimit))
		for i, part := range d.parts {
			if i%2 == 0 {
				receives(t, nc, part)
			} else {
				sends(t, nc, part)
			}
		}
		if err := within(t, "answer", asked); err != nil {
			t.Errorf("%v: %v", d.parts, err)
		}
		nc.Close()
		ln.Close()
		a.stop()
	}
}
