package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

// rewriting is a node's address at which some answers are others than its own: what a node shows
// only when it lacks disk or memory.
func rewriting(t *testing.T, node string, change func(path string, body []byte) []byte) string {
	t.Helper()
	to, err := url.Parse(node)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Del("Accept-Encoding")
			r.Out.Header.Del("Origin") // it is the proxy's
		},
		ModifyResponse: func(r *http.Response) error {
			body, err := io.ReadAll(r.Body)
			r.Body.Close()
			body = change(r.Request.URL.Path, body)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Length", fmt.Sprint(len(body)))
			return err
		},
	})
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// TestConsoleShowsWhatNodesLack: the cluster page has a badge at a node whose disk is almost full and
// at a shard that is full, says what a growth would wait for before it is asked for, and tells
// replicas that are taken away from such as are missing.
func TestConsoleShowsWhatNodesLack(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	p := serve(t, t.TempDir(), "--name", "n1")
	base := rewriting(t, p.url, func(path string, body []byte) []byte {
		text := string(body)
		switch path {
		case "/v1/cluster":
			text = strings.Replace(text, `"state":"alive"`, `"state":"alive","low_disk":true`, 1)
			text = strings.Replace(text, `"state":"ok"`, `"state":"ok","full":true`, 1)
			text = strings.Replace(text, `{`, `{"moves":{"under_way":2,"bytes":0,"waiting":0,"repairs":0},`, 1)
		case "/v1/cluster/shards":
			text = strings.Replace(text, `{`, `{"waits_for":"memory","shard":3,`, 1)
		}
		return []byte(text)
	})
	b.size(1280, 1000, "light")
	b.open(base + "/#/cluster")
	badges := func(words string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('.badge.bad')].filter((e) => e.innerText === %q).length === 1`, words)
	}
	b.awaitTrue("the node's disk is almost full", badges("disk almost full"))
	b.awaitTrue("one shard is full", badges("full"))
	b.sees("2 replicas are moving between nodes or being removed.")
	b.awaitTrue("none of them is missing", `!/replace missing replicas/.test(document.body.innerText)`)
	b.shot("lacks-light")
	b.click("More shards")
	b.click("Preview")
	b.sees("It would wait for shard 3: a node with a replica has almost used its memory.")
	b.content()
}
