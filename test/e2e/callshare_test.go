package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// besideLimit is how much the flood may add to the p99 lateness of other timers.
const besideLimit = 50 * time.Millisecond

// manyHosts is one listener on all loopback addresses, each of which counts as a receiver of its
// own. It answers until hangs is set.
type manyHosts struct {
	port     string
	hangs    atomic.Bool
	open     atomic.Int32 // hanging calls
	answered atomic.Int32
}

func newManyHosts(t testing.TB) *manyHosts {
	t.Helper()
	listener, err := net.Listen("tcp4", "0.0.0.0:0") // every 127.x.y.z
	if err != nil {
		t.Fatal(err)
	}
	h := &manyHosts{}
	_, h.port, _ = net.SplitHostPort(listener.Addr().String())
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !h.hangs.Load() {
			h.answered.Add(1)
			return
		}
		h.open.Add(1)
		defer h.open.Add(-1)
		<-r.Context().Done()
	})}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close(); <-ended })
	return h
}

// flood adds timers that are due at once, each with a host of its own, spread over the topics.
func (h *manyHosts) flood(t testing.TB, c *client, timers, topics int, timeout string) {
	t.Helper()
	for topic := range topics {
		var ops []string
		for i := topic; i < timers; i += topics {
			ops = append(ops, fmt.Sprintf(`{"op":"add","delay":"0s","callback":{"url":"http://127.%d.%d.%d:%s/","timeout":%q}}`, 10+topics%7, i/200, 1+i%200, h.port, timeout))
			if len(ops) == 1000 {
				c.must(t, 200, "POST", fmt.Sprintf("/v1/topics/hog.%d/batch?brief=true", topic), `{"ops":[`+strings.Join(ops, ",")+`]}`)
				ops = nil
			}
		}
		if len(ops) > 0 {
			c.must(t, 200, "POST", fmt.Sprintf("/v1/topics/hog.%d/batch?brief=true", topic), `{"ops":[`+strings.Join(ops, ",")+`]}`)
		}
	}
}

// TestHangingReceiversTakeNoCallsOfOthers: 2,100 receivers hang, more than the calls that a node
// makes at once. Timers for other receivers stay on time.
func TestHangingReceiversTakeNoCallsOfOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	const hosts = 2100
	for name, f := range map[string]struct {
		topics       int
		timeout      string
		answerBefore bool // like a provider whose network then fails
		tokens       bool
		most         int32 // hanging calls at most
	}{
		"of one topic, for a quarter of an hour":          {topics: 1, timeout: "15m", most: 896},
		"of a thousand topics, for a quarter of an hour":  {topics: 1050, timeout: "15m", most: 1024},
		"that answered until their network was gone":      {topics: 1, timeout: "25s", answerBefore: true, most: 896},
		"of another tenant's topics, that answered until": {topics: 300, timeout: "25s", answerBefore: true, tokens: true, most: 960},
	} {
		t.Run(strings.NewReplacer(" ", "_", ",", "").Replace(name), func(t *testing.T) {
			flags, hog, well := []string{"--callback-allow", "127.0.0.0/8"}, "", ""
			if f.tokens {
				var file string
				file, hog, well = twoTenants(t)
				flags = append(flags, "--auth-file", file)
			}
			node := serve(t, t.TempDir(), flags...)
			many := newManyHosts(t)
			bad, good := withToken(newClient(node), hog), withToken(newClient(node), well)
			if f.answerBefore {
				many.flood(t, bad, hosts, f.topics, f.timeout)
				poll(t, 60*time.Second, "all have answered once", func() bool { return many.answered.Load() >= hosts })
			}
			healthy := beginHealthy(t, good)
			wait(2 * time.Second)
			many.hangs.Store(true)
			flooded := time.Now()
			many.flood(t, bad, hosts, f.topics, f.timeout)
			poll(t, patience, "they hang", func() bool { return many.open.Load() >= f.most*3/4 })
			// The best of five stretches counts: the machine may be busy.
			quiet := healthy.between(time.Time{}, flooded)
			var beside []time.Duration
			for range 5 {
				full := time.Now()
				wait(4 * time.Second)
				if beside = healthy.between(full, time.Now()); len(beside) >= 100 && spreadOf(beside).p99 <= spreadOf(quiet).p99+besideLimit {
					break
				}
			}
			open := many.open.Load()
			all := healthy.latenesses(t)
			t.Logf("%d calls hang; quiet: %d timers, %v; beside: %d timers, %v; all: %v", open, len(quiet), spreadOf(quiet), len(beside), spreadOf(beside), spreadOf(all))
			if open > f.most {
				t.Errorf("%d calls hang, at most %d may", open, f.most)
			}
			if len(beside) < 100 || spreadOf(beside).p99 > spreadOf(quiet).p99+besideLimit || spreadOf(all).p99 > 2*spreadOf(quiet).p99+healthyLimit {
				t.Errorf("the others noticed")
			}
		})
	}
}

// between returns the latenesses of the timers that were due in a stretch of time and have come.
func (h *healthy) between(from, to time.Time) (late []time.Duration) {
	for _, a := range h.rcv.arrivals() {
		if due := time.UnixMilli(a.dueMs); due.After(from) && due.Before(to) {
			late = append(late, a.lateness())
		}
	}
	return late
}

// twoTenants writes an auth file with two tokens, each for topics of its own.
func twoTenants(t testing.TB) (file, hog, well string) {
	t.Helper()
	hog, well = "crl_"+strings.Repeat("h", 43), "crl_"+strings.Repeat("w", 43)
	line := func(name, token, topics string) string {
		sum := sha256.Sum256([]byte(token))
		return fmt.Sprintf("- {name: %s, sha256: %q, scopes: [add, cancel, read, topics, admin], topics: [%q]}\n", name, hex.EncodeToString(sum[:]), topics)
	}
	file = filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(file, []byte(line("hog", hog, "hog.*")+line("well", well, "well")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, hog, well
}

// bearer adds a token to each request.
type bearer struct {
	http.RoundTripper
	token string
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

func withToken(c *client, token string) *client {
	if token != "" {
		c.http.Transport = bearer{c.http.Transport, token}
	}
	return c
}
