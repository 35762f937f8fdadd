package callback

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
)

// TestTraceOfACall: a call carries its trace, unless the callback has a traceparent of its own,
// which then stands alone.
func TestTraceOfACall(t *testing.T) {
	got := make(chan http.Header, 1)
	r := receive(t, func(c net.Conn, in *bufio.Reader) {
		for {
			req, _, err := readRequest(in)
			if err != nil {
				return
			}
			got <- req.Header
			_, _ = io.WriteString(c, answer200)
		}
	})
	p := startPool(t, Config{Policy: local})
	const own = "00-11111111111111111111111111111111-2222222222222222-00"
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct {
		headers               []Header
		parent, state         string
		wantParent, wantState string
	}{
		{nil, "", "", "", ""},
		{nil, parent, "", parent, ""},
		{nil, parent, "a=b", parent, "a=b"},
		{[]Header{{"Traceparent", own}}, parent, "a=b", own, ""},
		{[]Header{{"TraceState", "x=y"}}, parent, "a=b", parent, "x=y"},
	} {
		req := post(r.url)
		req.Headers, req.TraceParent, req.TraceState = c.headers, c.parent, c.state
		if out := callOnce(t, p, req); out.Err != "" {
			t.Fatalf("%+v", out)
		}
		h := <-got
		for name, want := range map[string]string{"traceparent": c.wantParent, "tracestate": c.wantState} {
			if list := h.Values(name); len(list) > 1 || h.Get(name) != want {
				t.Errorf("%+v: %s: %q, want %q", c, name, list, want)
			}
		}
	}
	req := post(r.url)
	req.TraceParent, req.TraceState = parent, "a=b\r\nX-Evil: 1"
	if out := callOnce(t, p, req); out.Err != "bad request: control character" {
		t.Errorf("%+v", out)
	}
}
