package api

import (
	"bufio"
	"bytes"
	"net/http"
	"testing"

	"carillon/transport/api/web"
)

// TestRawProblemSaysWhenToRetry: an answer that the server writes by itself asks for a repetition
// where every other answer does, and nowhere else.
func TestRawProblemSaysWhenToRetry(t *testing.T) {
	for p, want := range map[*web.Problem]string{
		web.Fail(503, web.Overloaded, "too many connections"): "1",
		web.Bad(web.BadRequest, "this port speaks TLS"):       "",
	} {
		res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(rawProblem(p))), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := res.Header.Get("Retry-After"); res.StatusCode != p.Status || got != want {
			t.Errorf("%d: %d with Retry-After %q, want %q", p.Status, res.StatusCode, got, want)
		}
	}
}
