package callback

import (
	"bufio"
	"errors"
	"net/textproto"
	"strings"
	"testing"
)

func TestValidateHeader(t *testing.T) {
	for _, h := range []Header{
		{"X-Tenant", "7"}, {"Authorization", "Bearer x"}, {"Cookie", "a=b; c=d"}, {"x", ""}, {"!#$%&'*+-.^_`|~9", "ü \\ \""},
		{"Accept", "*/*"}, {"hosts", "x"}, {"te2", "x"}, {"webhookid", "x"}, {"X", strings.Repeat("v", maxHeaderBytes-1)},
	} {
		if err := ValidateHeader(h.Name, h.Value); err != nil {
			t.Errorf("%.40q: %v", h, err)
		}
	}
	for _, h := range []Header{
		{"", "x"}, {"a b", "x"}, {"a:b", "x"}, {"a\r\nb", "x"}, {"ü", "x"}, {"a\x00", "x"}, {"(a)", "x"},
		{"X", "a\r\nHost: evil"}, {"X", "a\nb"}, {"X", "a\x00"}, {"X", "a\tb"}, {"X", "\x7f"},
		{"Host", "x"}, {"hOST", "x"}, {"Content-Length", "1"}, {"Transfer-Encoding", "chunked"}, {"Connection", "close"},
		{"Keep-Alive", "x"}, {"TE", "x"}, {"Trailer", "x"}, {"Upgrade", "x"}, {"Expect", "100-continue"}, {"Proxy-Authorization", "x"},
		{"proxy-connection", "x"}, {"Content-Type", "x"}, {"User-Agent", "x"}, {"Webhook-Id", "x"}, {"webhook-x", "x"},
		{"CARILLON-Fence", "1"}, {"Webhook_Id", "x"}, {"webhook_id", "x"}, {"Carillon_Fence", "1"}, {"Content_Length", "1"}, {"CONTENT_TYPE", "x"},
		{"Transfer_Encoding", "chunked"}, {"Proxy_Authorization", "x"}, {"User_Agent", "x"}, {"keep_alive", "x"}, {"Idempotency_Key", "x"}, {"X-Idempotency_Key", "x"}, {"Idempotency-Key", "x"}, {"x-idempotency-key", "x"}, {"X", strings.Repeat("v", maxHeaderBytes)},
	} {
		if err := ValidateHeader(h.Name, h.Value); !errors.Is(err, ErrBadHeader) {
			t.Errorf("%.40q: %v, want ErrBadHeader", h, err)
		}
	}
}

// FuzzHeader: an accepted header is one header on the wire, and not one of ours.
func FuzzHeader(f *testing.F) {
	f.Add("X-Tenant", "7")
	f.Add("X", "a\r\nHost: b")
	f.Add("Host ", "b")
	f.Add("webhook-id", "")
	f.Add("content-length", "0")
	f.Fuzz(func(t *testing.T, name, value string) {
		if ValidateHeader(name, value) != nil {
			return
		}
		in := textproto.NewReader(bufio.NewReader(strings.NewReader(name + ": " + value + "\r\n\r\n")))
		parsed, err := in.ReadMIMEHeader()
		if err != nil || len(parsed) != 1 {
			t.Fatalf("%q: %q reads back as %v, %v", name, value, parsed, err)
		}
		for got := range parsed {
			if !strings.EqualFold(got, name) || forbiddenHeaders[strings.ToLower(got)] {
				t.Fatalf("%q accepted, reads back as %q", name, got)
			}
		}
	})
}
