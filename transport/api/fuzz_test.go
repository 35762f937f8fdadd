package api

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"carillon/transport/api/web"

	"github.com/valyala/fasthttp"
)

// fuzzServer is a server over a fake engine, to be called without a socket.
func fuzzServer(f *testing.F) (*Server, *fakeEngine) {
	e := newFakeEngine(func() time.Time { return noon })
	s, err := New(Config{Settings: web.Settings{Engine: e, Clock: func() time.Time { return noon }}})
	if err != nil {
		f.Fatal(err)
	}
	return s, e
}

var documents = []string{
	``, `null`, `nul`, `-0`, `01`, `1e5`, `"a`, `"\ud83d\ude00"`, `"\ud83d"`, "\"\x00\"", "\"\xff\"", `[1,]`, `{"a":{"b":[{}]}}`, `{"a":1]`, `{"a":1,"a":2}`, "\ufeff{}",
	strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[", 65) + strings.Repeat("]", 65), strings.Repeat(`{"a":[`, 32) + strings.Repeat("]}", 32), strings.Repeat("[", 100_000),
}

// Any body as an add: it is 201 only when it is JSON, and then the answer is JSON with the payload
// as it was sent.
func FuzzAddBody(f *testing.F) {
	for _, doc := range documents {
		f.Add([]byte(`{"delay":"1h",` + cb + `,"payload":` + doc + `}`))
	}
	f.Add([]byte(`{"id":"{k}a","key":"k","at":"2026-07-01T00:00:00.5+02:00","payload_base64":"AA==","content_type":"a/b","callback":{"url":"http://a/","method":"PUT","headers":{"X":"y"},"timeout":"1s"},"priority":1,"labels":["a"],"expires_after":"1m","merge":"reject","retry":{"max_attempts":3,"min_backoff":"1s","max_backoff":"2s","multiplier":2,"jitter":0.5}}`))
	f.Add([]byte(`{"delay_ms":1,"repeat":{"cron":"* * * * *","zone":"UTC","count":1}}`))
	s, e := fuzzServer(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		clear(e.timers)
		var ctx fasthttp.RequestCtx
		ctx.Request.Header.SetMethod("POST")
		ctx.Request.SetRequestURI(timersPath)
		ctx.Request.Header.SetContentType("application/json")
		ctx.Request.SetBodyStream(bytes.NewReader(body), len(body))
		s.serve(&ctx)
		status, answer := ctx.Response.StatusCode(), ctx.Response.Body()
		if !json.Valid(answer) {
			t.Fatalf("%d: answer is not JSON: %s", status, answer)
		}
		if (status == 201) != (len(e.timers) == 1) {
			t.Fatalf("%d, and there are %d timers", status, len(e.timers))
		}
		switch {
		case status == 201:
			if !json.Valid(body) {
				t.Fatalf("took what is not JSON: %q", body)
			}
			var in, out struct{ Payload json.RawMessage }
			if err := json.Unmarshal(body, &in); err == nil && json.Unmarshal(answer, &out) == nil && !bytes.Equal(in.Payload, out.Payload) {
				t.Fatalf("payload %s became %s", in.Payload, out.Payload)
			}
		case status != 400 && status != 413 && status != 422:
			t.Fatalf("%d: %s", status, answer)
		}
	})
}

// The auth file gives tokens that hold, or a fault.
func FuzzAuth(f *testing.F) {
	f.Add([]byte("- name: a\n  sha256: " + strings.Repeat("0f", 32) + "\n  scopes: [add, read]\n  topics: [\"orders*\"]\n"))
	f.Add([]byte("- {}"))
	f.Add([]byte("[]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseAuth(data)
		for i := range list {
			if p := &list[i]; err == nil && (p.Name == "" || p.Scopes == 0 || len(p.Topics) == 0) {
				t.Fatalf("%q gives %s %v %v", data, p.Name, p.Scopes, p.Topics)
			}
		}
	})
}

// A short run of the whole server on random streams: it answers or closes, and lives.
func TestServerLivesThroughNoise(t *testing.T) {
	h := newHarness(t)
	for i, c := range documents {
		conn, err := net.Dial("tcp", h.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, goodHead+"Content-Length: "+decLen(c)+"\r\nConnection: close\r\n\r\n"+c)
		if i%2 == 0 {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
	}
	h.do("GET", "/healthz", "").want(200)
}

// Only that is taken for a host which others take for it, so that nobody on the way sends a request
// for another name here.
func FuzzHost(f *testing.F) {
	for _, s := range []string{"localhost", "127.0.0.1:7700", "[::1]:80", "a@b", "timers.example.", "[::ffff:127.0.0.1]", "127.1", "0x7f.1", "[fe80::1%25eth0]", "a:b:c", "ü", "a/b", "%41"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, address, port, ok := splitHost(s)
		if !ok {
			return
		}
		u, err := url.Parse("http://" + s + "/")
		if err != nil || u.Host != s || u.User != nil || u.Path != "/" || u.Port() != port {
			t.Fatalf("%q is no authority of a URL: %+v %v", s, u, err)
		}
		if other := strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")); !address.IsValid() && other != name {
			t.Fatalf("%q is %q here and %q elsewhere", s, name, other)
		}
		if other, err := netip.ParseAddr(u.Hostname()); err == nil && other.Unmap().WithZone("") != address.Unmap() {
			t.Fatalf("%q is %v here and %v elsewhere", s, address, other)
		}
	})
}
