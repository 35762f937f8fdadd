package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// residentMB is the resident memory of a process in MiB.
func residentMB(t testing.TB, p *process) int {
	t.Helper()
	return procMB(t, p, "VmRSS:")
}

// procMB reads a line of /proc/PID/status, in MiB.
func procMB(t testing.TB, p *process, line string) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), line)
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb >> 10
}

// TestSmallRequestsMakeNoLargeAnswers: eight clients that read no answers send small requests with
// large answers: 27 KB that change 600 timers of 255 KiB each, or 60 bytes that list them. They
// cost at most 350 MiB, most of which is released when they are gone.
func TestSmallRequestsMakeNoLargeAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	node := serve(t, t.TempDir(), "--shards", "16")
	c := newClient(node)
	c.topic(t, "large", "http://127.0.0.1:9/", "")
	payload := strings.Repeat("x", 255<<10)
	var patches []string
	for i := range 20 {
		var adds []string
		for k := range 30 {
			id := fmt.Sprintf("t%d", 30*i+k)
			adds = append(adds, `{"op":"add","id":"`+id+`","delay":"24h","payload":"`+payload+`"}`)
			patches = append(patches, `{"op":"patch","id":"`+id+`","priority":1}`)
		}
		for _, status := range c.batch(t, "large", adds) {
			if status != 201 {
				t.Fatal(status)
			}
		}
	}
	body := `{"ops":[` + strings.Join(patches, ",") + `]}`
	if len(body) > 30<<10 {
		t.Fatalf("the batch has %d bytes", len(body))
	}
	a := c.must(t, 200, "POST", "/v1/topics/large/batch", body)
	if len(a.body) > 9<<20 || strings.Count(string(a.body), `"status":200`) != 600 || !strings.Contains(string(a.body), `"truncated":true`) {
		t.Errorf("an answer of %d bytes", len(a.body))
	}
	settled := func() int {
		poll(t, 60*time.Second, "memory is at rest", func() bool {
			before := residentMB(t, node)
			<-time.After(3 * time.Second)
			return residentMB(t, node) <= before+2 && residentMB(t, node) >= before-2
		})
		return residentMB(t, node)
	}
	rest := settled()
	head := "Host: localhost\r\nContent-Type: application/json\r\n"
	for name, request := range map[string]string{
		"patches":       "POST /v1/topics/large/batch HTTP/1.1\r\n" + head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body,
		"brief patches": "POST /v1/topics/large/batch?brief=true HTTP/1.1\r\n" + head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body,
		"lists":         "GET /v1/topics/large/timers?limit=1000 HTTP/1.1\r\n" + head + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			peak := rest
			var unread []net.Conn
			for range 8 {
				conn, err := net.Dial("tcp", strings.TrimPrefix(node.url, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				unread = append(unread, conn)
				go func() { _, _ = io.WriteString(conn, strings.Repeat(request, 4)) }()
			}
			for range 100 {
				<-time.After(50 * time.Millisecond)
				peak = max(peak, residentMB(t, node))
			}
			t.Logf("%d MB at rest, %d MB with eight unread", rest, peak)
			if peak > rest+350 {
				t.Errorf("eight clients that read nothing cost %d MB", peak-rest)
			}
			c.must(t, 200, "GET", "/v1/topics", "")
			for _, conn := range unread {
				conn.Close()
			}
			if !holdsWithin(30*time.Second, func() bool { return residentMB(t, node) < rest+100 }) {
				t.Errorf("half a minute later it still holds %d MB more", residentMB(t, node)-rest)
			}
		})
	}
	node.stop(t)
}
