package loadtest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// served is a client's side of a real connection, whose other side serve has.
func served(t *testing.T, serve func(net.Conn)) *httpConn {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); ln.Close(); <-done })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	a, ok := newHTTPConn(conn).(*httpConn)
	if !ok {
		t.Fatal("a TCP connection is not asked directly")
	}
	return a
}

// An answer that comes at once, before anybody waits for it, is not missed.
func TestAskManyTimes(t *testing.T) {
	a := served(t, func(conn net.Conn) { _, _ = io.Copy(conn, conn) })
	request, room := []byte("how late is it?"), make([]byte, 100)
	for i := range 20_000 {
		request[0] = byte(i)
		if n, err := a.ask(request, room); err != nil || !bytes.Equal(room[:n], request) {
			t.Fatalf("exchange %d: %q, %v", i, room[:n], err)
		}
	}
}

// A request that no socket's buffer holds is written whole before the answer is read.
func TestAskMuch(t *testing.T) {
	request := bytes.Repeat([]byte("0123456789abcdef"), 1<<19)
	a := served(t, func(conn net.Conn) {
		if got, err := io.ReadAll(io.LimitReader(conn, int64(len(request)))); err == nil && bytes.Equal(got, request) {
			_, _ = conn.Write([]byte("all"))
		}
	})
	room := make([]byte, 100)
	if n, err := a.ask(request, room); err != nil || string(room[:n]) != "all" {
		t.Fatalf("%q, %v", room[:n], err)
	}
}

func TestAskOfOneWhoIsGone(t *testing.T) {
	a := served(t, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 100)) })
	if n, err := a.ask([]byte("?"), make([]byte, 100)); !errors.Is(err, io.EOF) {
		t.Fatalf("%d, %v, want EOF", n, err)
	}
}

func TestAskInVain(t *testing.T) {
	a := served(t, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	for range 2 { // the second finds the deadline passed
		if err := a.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := a.ask([]byte("?"), make([]byte, 100)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d, %v, want the deadline's", n, err)
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
