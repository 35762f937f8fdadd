package callback

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"carillon/test/sim/forged"
)

// TestBodiesAndHeadersAreData: a body that is an answer, headers, an event or a frame arrives as it
// is, and adds no header; so does a header's value, if it is one. A plain call and a CloudEvent.
func TestBodiesAndHeadersAreData(t *testing.T) {
	type call struct {
		header http.Header
		body   []byte
	}
	got := make(chan call, 1)
	r := receive(t, func(c net.Conn, in *bufio.Reader) {
		for {
			req, body, err := readRequest(in)
			if err != nil {
				return
			}
			got <- call{req.Header, body}
			_, _ = io.WriteString(c, answer200)
		}
	})
	p := startPool(t, Config{Policy: local})
	made := func(req *Request) call {
		t.Helper()
		if out := callOnce(t, p, req); out.Err != "" {
			t.Fatalf("%+v", out)
		}
		return <-got
	}
	bodies := forged.Forms()
	for name, text := range forged.Texts() {
		bodies[name] = []byte(text)
	}
	for _, event := range []bool{false, true} {
		plain := post(r.url)
		plain.CloudEvent, plain.Headers = event, []Header{{"X-Own", "a"}}
		names := made(plain).header
		for name, body := range bodies {
			req := post(r.url)
			req.CloudEvent, req.Body, req.Headers = event, body, []Header{{"X-Own", "a"}}
			if value := string(body); utf8.Valid(body) && strings.TrimSpace(value) == value && ValidateHeader("X-Own", value) == nil {
				req.Headers[0].Value = value
			}
			c := made(req)
			if !bytes.Equal(c.body, body) {
				t.Errorf("%s: the body came as %q", name, c.body)
			}
			if v := c.header["X-Own"]; len(v) != 1 || v[0] != req.Headers[0].Value {
				t.Errorf("%s: the header came as %q", name, v)
			}
			for key := range maps.Keys(c.header) {
				if _, known := names[key]; !known || len(c.header[key]) != 1 {
					t.Errorf("%s: header %s: %q", name, key, c.header[key])
				}
			}
			if c.header.Get("Carillon-Fence") != "7" || c.header.Get("webhook-id") != "msg_1" {
				t.Errorf("%s: %v", name, c.header)
			}
		}
	}
}

// TestStrangersTextsInTheLog: what a receiver's failure says is one value of one line, in both
// forms of the log.
func TestStrangersTextsInTheLog(t *testing.T) {
	for name, text := range forged.Texts() {
		for _, asJSON := range []bool{false, true} {
			l := newLogOf(t)
			if asJSON {
				l.log.logger = slog.New(slog.NewJSONHandler(&l.out, nil))
			}
			l.dest.failure.Store(&failure{text: text})
			l.change(l.gate("orders"), true)
			line, rest, _ := strings.Cut(l.out.String(), "\n")
			if rest != "" || strings.ContainsAny(line, "\r\x00\x07\x1b\u2028") {
				t.Fatalf("%s: %q", name, l.out.String())
			}
			if !asJSON {
				if _, after, _ := strings.Cut(line, " error="); !strings.HasPrefix(after, text+" ") && !strings.HasPrefix(after, strconv.Quote(text)+" ") {
					t.Errorf("%s: %s", name, line)
				}
				continue
			}
			var v struct{ Error, Level, Destination, Topic string }
			if err := json.Unmarshal([]byte(line), &v); err != nil || v.Level != "WARN" || v.Topic != "orders" || utf8.ValidString(text) && v.Error != text {
				t.Errorf("%s: %s: %v", name, line, err)
			}
		}
	}
}
