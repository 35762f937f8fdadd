package callback

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	yaml "go.yaml.in/yaml/v3"
)

var headerName = regexp.MustCompile("`([A-Za-z-]+)`")

// TestDocumentedHeaders: docs/openapi.yaml and docs/callbacks.md name the headers that a call has
// beside those of every HTTP request, and no other.
func TestDocumentedHeaders(t *testing.T) {
	text, err := os.ReadFile("../../docs/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Webhooks map[string]map[string]struct {
			Parameters []struct{ Name, In string }
		}
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, p := range doc.Webhooks["callback"]["post"].Parameters {
		if p.In == "header" {
			documented = append(documented, http.CanonicalHeaderKey(p.Name))
		}
	}
	got := make(chan http.Header, 1)
	r := receive(t, func(c net.Conn, in *bufio.Reader) {
		if req, _, err := readRequest(in); err == nil {
			got <- req.Header
		}
		_, _ = io.WriteString(c, answer200)
	})
	p := startPool(t, Config{Policy: local, TestClock: time.Now})
	req := post(r.url)
	req.Receipt, req.Secrets, req.CloudEvent, req.AskedMs = "r", [][]byte{make([]byte, 24)}, true, 1
	req.TraceParent, req.TraceState = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b"
	callOnce(t, p, req)
	var sent []string
	for name := range <-got {
		if !slices.Contains([]string{"User-Agent", "Content-Type", "Content-Length"}, name) {
			sent = append(sent, name)
		}
	}
	page, err := os.ReadFile("../../docs/callbacks.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(page), "## Signatures")
	var explained []string
	for row := range strings.Lines(table) {
		names, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		for _, m := range headerName.FindAllStringSubmatch(names, -1) {
			if name := http.CanonicalHeaderKey(m[1]); strings.HasPrefix(row, "| ") && name != "User-Agent" {
				explained = append(explained, name)
			}
		}
	}
	slices.Sort(documented)
	slices.Sort(explained)
	slices.Sort(sent)
	if !slices.Equal(explained, sent) {
		t.Errorf("docs/callbacks.md explains %v, sent %v", explained, sent)
	}
	if !slices.Equal(documented, sent) {
		t.Errorf("documented %v, sent %v", documented, sent)
	}
}
