package loadtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"carillon/test/testkit"
)

// served is a client's side of a real connection, whose other side serve has.
func served(t *testing.T, serve func(net.Conn)) (net.Conn, *answers) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn)
	}()
	conn, err := net.Dial("tcp", ln.Addr().String())
	testkit.Must(t, err)
	t.Cleanup(func() { conn.Close(); ln.Close(); <-done })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn, newAnswers(conn)
}

// answerOf is an answer with that body.
func answerOf(body []byte) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// One answer after the other is that of its own request.
func TestAskManyTimes(t *testing.T) {
	request := []byte("how late is it?")
	_, a := served(t, func(conn net.Conn) {
		got := make([]byte, len(request))
		for {
			if _, err := io.ReadFull(conn, got); err != nil {
				return
			}
			_, _ = conn.Write(answerOf(got))
		}
	})
	for i := range 20_000 {
		request[0] = byte(i)
		if got, err := a.ask(request); err != nil || !bytes.Equal(got.body, request) {
			t.Fatalf("exchange %d: %q, %v", i, got.body, err)
		}
	}
}

// A request that no socket's buffer holds is written whole before the answer is read.
func TestAskMuch(t *testing.T) {
	request := bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
	_, a := served(t, func(conn net.Conn) {
		if got, err := io.ReadAll(io.LimitReader(conn, int64(len(request)))); err == nil && bytes.Equal(got, request) {
			_, _ = conn.Write(answerOf([]byte("all")))
		}
	})
	if got, err := a.ask(request); err != nil || string(got.body) != "all" {
		t.Fatalf("%q, %v", got.body, err)
	}
}

func TestAskOfOneWhoIsGone(t *testing.T) {
	_, a := served(t, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 100)) })
	if got, err := a.ask([]byte("?")); !errors.Is(err, io.EOF) {
		t.Fatalf("%v, %v, want EOF", got, err)
	}
}

func TestAskInVain(t *testing.T) {
	conn, a := served(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	for range 2 { // the second finds the deadline passed
		if err := conn.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if got, err := a.ask([]byte("?")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%v, %v, want the deadline's", got, err)
		}
	}
}

func TestProcessors(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   int
	}{
		{Config{Mode: ModeAdd, Connections: 128}, 1},
		{Config{Mode: ModeFire, Threads: 3}, 3},
		{Config{Mode: ModeAdd, Connections: 10_000, Threads: 1}, 1},
	} {
		if got := c.config.Processors(); got != c.want {
			t.Errorf("%+v: %d processors, want %d", c.config, got, c.want)
		}
	}
}
