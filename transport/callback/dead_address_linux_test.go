package callback

import (
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silent listens at 127.0.0.2 and takes no connection: the kernel drops every SYN once the queue of
// accepted ones is full, as a host does that is gone. false: another process has the port there.
func silent(t *testing.T, port int) bool {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 2}}); err == syscall.EADDRINUSE {
		return false
	} else if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.2", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for begun := time.Now(); ; <-time.After(time.Millisecond) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		switch {
		case err != nil:
			t.Fatal(err)
		case info.Unacked > info.Sacked: // of a socket that listens: the queue, and its limit
			return true
		case time.Since(begun) > patience:
			t.Fatal("127.0.0.2 goes on taking connections")
		}
	}
}

// TestDeadAddressCostsLittle: one of a name's two addresses is dead; the call is made at the other
// one long before half of its time-out has passed.
func TestDeadAddressCostsLittle(t *testing.T) {
	port := 0
	for port == 0 {
		r := receive(t, always(answer200))
		free, err := strconv.Atoi(r.url[strings.LastIndexByte(r.url, ':')+1:])
		if err != nil {
			t.Fatal(err)
		}
		if silent(t, free) {
			port = free
		}
	}
	p := startPool(t, Config{Policy: local, Resolver: nameServerOf(t, func(string) [][4]byte {
		return [][4]byte{{127, 0, 0, 2}, {127, 0, 0, 1}}
	})})
	req := post("http://name.example:" + strconv.Itoa(port))
	req.Timeout = 2 * patience
	if out := callOnce(t, p, req); out.Err != "" || out.Took > patience/2 {
		t.Errorf("%+v, want success after about %v", out, attemptDelay)
	}
}
