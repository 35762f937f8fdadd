package e2e

import (
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStopWithHalfRequests: clients that sent only part of a request do not delay the stop of a
// node. Those that sent a head and not all of the body are answered 408.
func TestStopWithHalfRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	node := serve(t, t.TempDir(), "--shards", "4")
	const head = "POST /v1/topics/half/timers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	halves := map[string]string{
		"nothing":        "",
		"half a line":    "POST /v1/top",
		"half a header":  head + "Content-Le",
		"no body":        head + "Content-Length: 100\r\n\r\n",
		"half a body":    head + "Content-Length: 100\r\n\r\n{\"delay\":\"1h\",",
		"half a chunk":   head + "Transfer-Encoding: chunked\r\n\r\n40\r\n{\"delay\"",
		"an idle client": "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
	}
	answers := make(chan [2]string, len(halves))
	for name, half := range halves {
		c, err := net.Dial("tcp", strings.TrimPrefix(node.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, half); err != nil {
			t.Fatal(err)
		}
		go func() {
			got, _ := io.ReadAll(c)
			answers <- [2]string{name, string(got)}
		}()
	}
	<-time.After(200 * time.Millisecond) // for the requests to arrive
	began := time.Now()
	node.signal(t, syscall.SIGTERM)
	if code := node.awaitExit(t, 40*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %v to stop", took)
	} else {
		t.Logf("stopped after %v", took)
	}
	for range halves {
		a := <-answers
		if strings.Contains(a[0], "body") && !strings.Contains(a[1], " 408 ") {
			t.Errorf("%s was answered %q, want a 408", a[0], a[1])
		}
	}
}
