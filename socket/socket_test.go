package socket_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"carillon/socket"
)

// ports differ from connection to connection.
var ports = regexp.MustCompile(`:\d+`)

// pair is two ends of one connection over loopback.
func pair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// A wrapped connection does all that net.Conn asks for: deadlines, closing meanwhile, several users at once.
func TestWrapIsANetConn(t *testing.T) {
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		client, server := pair(t)
		a, b := socket.Wrap(client), socket.Wrap(server)
		return a, b, func() { a.Close(); b.Close() }, nil
	})
}

func TestWrapLeavesOthersAlone(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	defer a.Close()
	if socket.Wrap(a) != a {
		t.Fatal("a pipe has no socket")
	}
}

// More than the buffers of both sockets take waits for the reader, and arrives whole.
func TestMoreThanTheBuffersTake(t *testing.T) {
	client, server := pair(t)
	sent := make([]byte, 24<<20)
	for i := range sent {
		sent[i] = byte(i * 7 >> 3)
	}
	wrote := make(chan error, 1)
	go func() {
		n, err := socket.Wrap(client).Write(sent)
		if err == nil && n != len(sent) {
			err = io.ErrShortWrite
		}
		wrote <- errors.Join(err, client.Close())
	}()
	got, err := io.ReadAll(socket.Wrap(server))
	if err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, sent) {
		t.Fatalf("%d bytes sent, %d other ones arrived", len(sent), len(got))
	}
}

// What goes wrong reads as it does from a TCPConn.
func TestErrorsAreThoseOfTCPConn(t *testing.T) {
	scenes := map[string]func(c net.Conn, other net.Conn) error{
		"end": func(c, other net.Conn) error {
			other.Close()
			_, err := c.Read(make([]byte, 1))
			return err
		},
		"read too late": func(c, _ net.Conn) error {
			c.SetReadDeadline(time.Unix(1, 0))
			_, err := c.Read(make([]byte, 1))
			return err
		},
		"write too late": func(c, _ net.Conn) error {
			c.SetWriteDeadline(time.Unix(1, 0))
			_, err := c.Write([]byte("x"))
			return err
		},
		"closed": func(c, _ net.Conn) error {
			c.Close()
			_, err := c.Write([]byte("x"))
			return err
		},
		"reset": func(c, other net.Conn) error {
			other.(*net.TCPConn).SetLinger(0)
			other.Close()
			_, err := c.Read(make([]byte, 1))
			return err
		},
	}
	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t)
			plain := scene(client, server)
			client, server = pair(t)
			wrapped := scene(socket.Wrap(client), server)
			if plain == nil || wrapped == nil || ports.ReplaceAllString(wrapped.Error(), "P") != ports.ReplaceAllString(plain.Error(), "P") {
				t.Fatalf("plain %v, wrapped %v", plain, wrapped)
			}
			for _, target := range []error{io.EOF, os.ErrDeadlineExceeded, net.ErrClosed, syscall.ECONNRESET} {
				if errors.Is(plain, target) != errors.Is(wrapped, target) {
					t.Errorf("is %v: plain %v, wrapped %v", target, errors.Is(plain, target), errors.Is(wrapped, target))
				}
			}
		})
	}
}

// A deadline that passes while a write waits says how much of it left.
func TestWriteThatIsCutOffSaysHowFar(t *testing.T) {
	client, server := pair(t)
	c := socket.Wrap(client)
	n, err := 0, error(nil)
	for patience := 50 * time.Millisecond; n == 0; patience *= 2 { // which may be over before the first byte on a busy machine
		c.SetWriteDeadline(time.Now().Add(patience))
		n, err = c.Write(make([]byte, 64<<20))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) || n == 64<<20 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	c.Close()
	if got, err := io.Copy(io.Discard, server); err != nil || got != int64(n) {
		t.Fatalf("%d arrived of %d, %v", got, n, err)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	client, server := pair(t)
	a, b := socket.Wrap(client), socket.Wrap(server)
	buf := make([]byte, 256)
	turn := func() {
		if _, err := a.Write(buf); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(b, buf); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, turn); n > 0 {
		t.Fatalf("%v allocations a turn", n)
	}
}
