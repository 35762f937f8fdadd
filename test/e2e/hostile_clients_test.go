package e2e

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// limited starts a node that may open this many files.
func limited(t testing.TB, files int, dir string, flags ...string) *process {
	t.Helper()
	p := launch(t, []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, files), "sh"}, dir, flags...)
	p.awaitReady(t)
	return p
}

// crowd tries to open n silent connections from one address. It returns those that connected, even
// if the node closes them.
func crowd(t testing.TB, p *process, from string, n int) (open []net.Conn) {
	t.Helper()
	d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	for range n {
		c, err := d.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			continue // the accept queue is full
		}
		t.Cleanup(func() { c.Close() })
		open = append(open, c)
	}
	return open
}

// TestSilentConnectionsAtALowLimitOfFiles: four thousand silent connections from one address do not
// make a node that may open 1,024 files exit or shut out other clients. It still accepts timers and
// calls receivers.
func TestSilentConnectionsAtALowLimitOfFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	for _, flags := range [][]string{nil, {"--max-connections", "100000"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			node := limited(t, 1024, t.TempDir(), append([]string{"--shards", "4"}, flags...)...)
			if !strings.Contains(node.stderr.String(), "allows fewer connections") {
				t.Errorf("the log does not say that the limit is low: %s", node.stderr)
			}
			r := newReceiver(t, nil)
			c := newClient(node)
			c.topic(t, "silent", r.url(), "")
			for round := range 4 {
				if open := crowd(t, node, "127.0.0.2", 1000); len(open) < 900 {
					t.Errorf("round %d: only %d of 1000 connected", round, len(open))
				}
				id := fmt.Sprintf("t%d", round)
				c.must(t, 201, "POST", "/v1/topics/silent/timers", `{"id":"`+id+`","delay":"100ms"}`)
				// Each try has its own connection. A connection that met a full accept queue would
				// wait for the kernel's retries after 1, 3, 7, 15 and 31 s.
				fresh := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
				poll(t, patience, "a new connection is served", func() bool {
					resp, err := fresh.Get(node.url + "/readyz")
					if err != nil {
						return false
					}
					resp.Body.Close()
					return resp.StatusCode == http.StatusOK
				})
				poll(t, patience, "the timer is called", func() bool { return r.called("silent", id) == 1 })
			}
			if !node.alive() {
				t.Fatal("the node ended")
			}
			node.stop(t)
		})
	}
}

// TestManyIdleConnectionsOfOneAddress: an address with more open connections than --max-connections
// shuts out neither other clients nor health probes.
func TestManyIdleConnectionsOfOneAddress(t *testing.T) {
	t.Parallel()
	node := serve(t, t.TempDir(), "--shards", "4", "--max-connections", "400")
	crowd(t, node, "127.0.0.2", 420)
	for i := range 50 {
		probe := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		for _, path := range []string{"/healthz", "/readyz", "/v1/topics"} {
			resp, err := probe.Get(node.url + path)
			if err != nil {
				t.Fatalf("%d: %s: %v", i, path, err)
			}
			resp.Body.Close()
			if resp.StatusCode != 200 {
				t.Fatalf("%d: %s: %d", i, path, resp.StatusCode)
			}
		}
	}
	node.stop(t)
}

// TestPagesFromElsewhereChangeNothing: a node refuses requests that browsers send for foreign
// pages, recognized by a foreign Host (DNS rebinding) or a foreign origin, on loopback and on all
// addresses.
func TestPagesFromElsewhereChangeNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	for name, flags := range map[string][]string{
		"loopback":   nil,
		"everywhere": {"--http", "0.0.0.0:0", "--insecure-no-auth", "--name", "box", "--http-host", "timers.example"},
	} {
		t.Run(name, func(t *testing.T) {
			node := serve(t, t.TempDir(), append([]string{"--shards", "4"}, flags...)...)
			c := newClient(node)
			c.must(t, 201, "PUT", "/v1/topics/own", `{"history":"1h"}`)
			address := strings.TrimPrefix(node.url, "http://")
			_, port, _ := net.SplitHostPort(address)
			ask := func(host string, headers ...string) string {
				head := "POST /v1/topics/own/pause HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n"
				for _, h := range headers {
					head += h + "\r\n"
				}
				return exchangeRaw(t, address, head+"\r\n")
			}
			for _, host := range []string{"evil.example", "evil.example:" + port, "localhost.evil.example", "10.0.0.1:" + port, "0.0.0.0:" + port} {
				if got := ask(host); got != "421" {
					t.Errorf("Host %s: %s", host, got)
				}
			}
			for _, header := range []string{"Origin: https://evil.example", "Origin: null", "Origin: http://127.0.0.1:1", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"} {
				if got := ask(address, header); got != "403" {
					t.Errorf("%s: %s", header, got)
				}
			}
			if a := c.must(t, 200, "GET", "/v1/topics/own", ""); !strings.Contains(string(a.body), `"paused":false`) {
				t.Errorf("the topic was changed: %s", a.body)
			}
			if got := ask(address, "Origin: "+node.url, "Sec-Fetch-Site: same-origin"); got != "200" {
				t.Errorf("the node's own page: %s", got)
			}
			if name == "everywhere" {
				for _, host := range []string{"box:" + port, "timers.example"} {
					if got := ask(host); got != "200" {
						t.Errorf("Host %s: %s", host, got)
					}
				}
			}
		})
	}
}
