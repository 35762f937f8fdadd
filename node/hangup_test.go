package node

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"carillon/test/testkit"
)

// hangsUp asks for a pull that waits, until the node has it parked, and then goes away as end says.
func (r *running) hangsUp(topic string, end func(*net.TCPConn)) {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.base, "http://"))
	testkit.Must(r.t, err)
	const body = `{"max":10,"wait":"20s"}`
	parked := r.parked() + 1
	fmt.Fprintf(conn, "POST /v1/topics/%s/pull HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		topic, conn.RemoteAddr(), len(body), body)
	r.await("the pull is parked", func(n int) bool { return n == parked })
	end(conn.(*net.TCPConn))
}

func (r *running) parked() int { return r.node.run.Load().core.Load().router.Waiting() }

// await polls how many pulls are parked at a node.
func (r *running) await(what string, ok func(parked int) bool) {
	r.t.Helper()
	until(r.t, what, func() bool { return ok(r.parked()) })
}

var hangUps = map[string]func(*net.TCPConn){
	"closed": func(c *net.TCPConn) { c.Close() },
	"reset":  func(c *net.TCPConn) { _ = c.SetLinger(0); c.Close() },
	"closed behind another request": func(c *net.TCPConn) {
		fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		c.Close()
	},
}

// TestWhoHungUpGetsNothing: a timer that becomes ready after a consumer has gone goes to the next
// one at once, as its first attempt.
func TestWhoHungUpGetsNothing(t *testing.T) {
	n := start(t, t.TempDir())
	n.must(201, "PUT", "/v1/topics/jobs", `{"delivery":"pull"}`)
	for name, end := range hangUps {
		t.Run(name, func(t *testing.T) {
			for round := range 5 {
				try := 0
				promptly(t, func(hungUp bool) time.Duration {
					if try++; hungUp {
						n.hangsUp("jobs", end)
					}
					return takesOver(t, n, n, fmt.Sprint(strings.ReplaceAll(name, " ", "-"), round, "-", try))
				})
			}
		})
	}
}

// promptly fails if a takeover from a consumer that hung up takes long each time: longer than the
// limit, and than twice as long as one without such a consumer takes meanwhile, on a machine that
// is busy with other work. Who takes over from one that is still parked waits for seconds.
func promptly(t *testing.T, takeover func(hungUp bool) time.Duration) {
	t.Helper()
	const tries = 4
	limit := 100 * time.Millisecond
	var all []time.Duration
	for range tries {
		late := takeover(true)
		if late > limit {
			limit = max(limit, 2*takeover(false))
		}
		if all = append(all, late); late <= limit {
			return
		}
	}
	t.Errorf("each time it came late: %v, at most %v is right", all, limit)
}

// TestWhoHungUpElsewhereGetsNothing: the same where the consumers and the shards' leaders are at
// different nodes.
func TestWhoHungUpElsewhereGetsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	nodes := trio(t)
	nodes[0].must(201, "PUT", "/v1/topics/jobs", `{"delivery":"pull"}`)
	n := 0
	for round := range 6 {
		promptly(t, func(hungUp bool) time.Duration {
			for ; n < 100; n++ {
				if hungUp {
					nodes[round%3].hangsUp("jobs", hangUps["closed"])
				}
				before := nodes[0].leaders()
				late := takesOver(t, nodes[(round+1)%3], nodes[(round+2)%3], fmt.Sprint("j", n))
				if nodes[0].leaders() == before {
					n++
					return late
				} // else a consumer that waits has to ask the new leader first
			}
			t.Fatal("the leaderships do not come to rest")
			return 0
		})
	}
}

// leaders are the shards with their leaders as a node sees them.
func (r *running) leaders() string {
	r.t.Helper()
	var v struct {
		Shards []struct {
			Shard  int
			Leader string
		}
	}
	testkit.Must(r.t, json.Unmarshal([]byte(r.must(200, "GET", "/v1/cluster", "")), &v))
	return fmt.Sprint(v.Shards)
}

// takesOver adds three timers at one node and has a consumer at the other, which waits already, get
// them all. It says after how long the last of them came.
func takesOver(t *testing.T, add, pull *running, name string) (late time.Duration) {
	t.Helper()
	got := make(chan pulled, 3)
	begin := make(chan time.Time, 1)
	go func() {
		defer close(got)
		for left := 3; left > 0; {
			p := pull.pull("jobs", `{"max":10,"wait":"60s"}`)
			got <- p
			if left -= len(p.Timers); len(p.Timers) == 0 {
				return
			}
		}
	}()
	pull.await("the second pull is parked", func(n int) bool { return n > 0 })
	begin <- time.Now()
	var ops []string
	for i := range 3 {
		ops = append(ops, fmt.Sprintf(`{"op":"add","id":"%s-%d","delay":"0s"}`, name, i))
	}
	for deadline := time.Now().Add(patience); len(ops) > 0 && time.Now().Before(deadline); { // a shard may have no leader on a busy machine
		var v struct{ Results []struct{ Status int } }
		testkit.Must(t, json.Unmarshal([]byte(add.must(200, "POST", "/v1/topics/jobs/batch", `{"ops":[`+strings.Join(ops, ",")+`]}`)), &v))
		var again []string
		for i, r := range v.Results {
			if r.Status == 503 {
				again = append(again, ops[i])
			}
		}
		ops = again
	}
	began, count := <-begin, 0
	for p := range got {
		late = time.Since(began)
		for _, v := range p.Timers {
			count++
			if v.Attempt != 1 {
				t.Errorf("%s came as attempt %d", v.ID, v.Attempt)
			}
			if pull.claim("ack", v.Receipt, "") != 200 {
				t.Errorf("%s: its receipt is not good", v.ID)
			}
		}
	}
	if count != 3 {
		t.Errorf("%d timers came", count)
	}
	return late
}

// TestAnswerThatCannotBeWritten: the leases in it go back, and do not count.
func TestAnswerThatCannotBeWritten(t *testing.T) {
	n := start(t, t.TempDir())
	n.must(201, "PUT", "/v1/topics/jobs", `{"delivery":"pull"}`)
	payload := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xff}, 200_000))
	for i := range 20 { // 5 MB in the answer: more than the buffers of two sockets take
		n.must(201, "POST", "/v1/topics/jobs/timers", fmt.Sprintf(`{"id":"j%d","delay":"0s","payload_base64":%q}`, i, payload))
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.base, "http://"))
	testkit.Must(t, err)
	testkit.Must(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	const body = `{"max":20}`
	fmt.Fprintf(conn, "POST /v1/topics/jobs/pull HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", conn.RemoteAddr(), len(body), body)
	if _, err := bufio.NewReader(conn).Peek(1); err != nil { // the answer is on its way
		t.Fatal(err)
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
	count := 0
	for deadline := time.Now().Add(patience); count < 20 && time.Now().Before(deadline); {
		for _, v := range n.pull("jobs", `{"max":20,"wait":"1s"}`).Timers {
			count++
			if v.Attempt != 1 {
				t.Errorf("%s came as attempt %d", v.ID, v.Attempt)
			}
		}
	}
	if count != 20 {
		t.Errorf("%d of 20 timers came", count)
	}
	if code, _ := n.call("GET", "/healthz", ""); code != http.StatusOK {
		t.Error("not alive")
	}
}
