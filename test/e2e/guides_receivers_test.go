package e2e

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/test/freeport"
)

const (
	guideSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	guideKey    = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	guidePublic = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
)

// guideScheme is a signature scheme, with the receiver's environment and the topic's policy for it.
type guideScheme struct{ name, env, policy string }

var guideSchemes = []guideScheme{
	{"secret", "SECRET=" + guideSecret, fmt.Sprintf(`"secrets":[%q]`, guideSecret)},
	{"key", "PUBLIC_KEY=" + guidePublic, fmt.Sprintf(`"signing_keys":[%q]`, guideKey)},
}

// TestReceiversOfTheGuide: each receiver in docs/guides/receivers does each timer's work once,
// although calls are repeated, delayed, forged or cut off.
func TestReceiversOfTheGuide(t *testing.T) {
	if testing.Short() {
		t.Skip("other languages start slowly")
	}
	for _, c := range []struct {
		name    string
		needs   string
		command func(t *testing.T) []string
	}{
		{"go", "go", func(t *testing.T) []string { return []string{build(t, "./docs/guides/receivers/golang")} }},
		{"python", "python3", func(*testing.T) []string { return []string{"python3", "../../docs/guides/receivers/receiver.py"} }},
		{"node", "node", func(*testing.T) []string { return []string{"node", "../../docs/guides/receivers/receiver.mjs"} }},
		{"java", "java", func(*testing.T) []string { return []string{"java", "../../docs/guides/receivers/Receiver.java"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := exec.LookPath(c.needs); err != nil {
				t.Skipf("NOT CHECKED: the receiver in %s: %s is not installed", c.name, c.needs)
			}
			t.Parallel()
			command := c.command(t)
			for _, scheme := range guideSchemes {
				t.Run(scheme.name, func(t *testing.T) {
					if c.name == "python" && scheme.name == "key" && exec.Command("python3", "-c", "import cryptography").Run() != nil {
						t.Skip("NOT CHECKED: signing keys in Python: the package cryptography is not installed")
					}
					newGuideReceiver(t, command, scheme).check(t)
				})
			}
		})
	}
}

// guideReceiver is one of the guide's programs behind a proxy that records the node's calls.
type guideReceiver struct {
	command []string
	scheme  guideScheme
	address string
	running *process
	client  http.Client

	mu    sync.Mutex
	calls map[string][]guideCall // by timer
	lose  map[string]int         // by timer, calls whose answers are dropped
	hold  map[string]int         // by timer, calls that do not reach the receiver
}

type guideCall struct {
	header http.Header
	body   []byte
	status int // the receiver's answer; 0 if there is none
}

func newGuideReceiver(t *testing.T, command []string, scheme guideScheme) *guideReceiver {
	g := &guideReceiver{scheme: scheme, calls: map[string][]guideCall{}, lose: map[string]int{}, hold: map[string]int{}}
	g.address = freeport.Address(t)
	g.command = append(slices.Clip(command), g.address, filepath.Join(t.TempDir(), "state"))
	g.start(t)
	return g
}

func (g *guideReceiver) start(t *testing.T) {
	t.Helper()
	g.running = begin(t, g.command, g.scheme.env)
	awaitListener(t, g.address)
}

func (g *guideReceiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	call := guideCall{header: r.Header.Clone(), body: body}
	id := r.Header.Get("Carillon-Timer")
	g.mu.Lock()
	defer g.mu.Unlock()
	status := http.StatusServiceUnavailable
	if g.hold[id]--; g.hold[id] < 0 {
		call.status = g.post(call.header, call.body)
		status = cmp.Or(call.status, http.StatusBadGateway)
		if g.lose[id]--; g.lose[id] >= 0 {
			status = http.StatusBadGateway
		}
	}
	g.calls[id] = append(g.calls[id], call)
	w.WriteHeader(status)
}

// post sends a call to the receiver; 0 means no answer.
func (g *guideReceiver) post(header http.Header, body []byte) int {
	req, err := http.NewRequest("POST", "http://"+g.address+"/", bytes.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header = header.Clone()
	answer, err := g.client.Do(req)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

// signAgain signs changed headers with the scheme's secret or private key.
func (s guideScheme) signAgain(h http.Header, body []byte) {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(guideSecret, "whsec_"))
	private, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(guideKey, "whsk_"))
	sign := func(text string) string {
		if s.name == "key" {
			return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte(text)))
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	values := []string{"carillon-v1"}
	for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Carillon-Topic", "Carillon-Timer", "Carillon-Due", "Carillon-Attempt", "Carillon-Fence", "Carillon-Receipt"} {
		values = append(values, h.Get(name))
	}
	h.Set("Webhook-Signature", sign(h.Get("Webhook-Id")+"."+h.Get("Webhook-Timestamp")+"."+string(body)))
	// One of several signatures.
	h.Set("Carillon-Signature", "v1,AAAA v1a,AAAA "+sign(strings.Join(values, "\n")))
}

func (g *guideReceiver) check(t *testing.T) {
	node := serve(t, t.TempDir(), "--shards", "4")
	proxy := httptest.NewServer(g)
	t.Cleanup(proxy.Close)
	c := clientAt(node.url, callTimeout)
	c.must(t, 201, "PUT", "/v1/topics/orders", fmt.Sprintf(`{"callback":{"url":%q,"timeout":"60s"},%s,"retry":{"min_backoff":"100ms","max_backoff":"100ms"}}`, proxy.URL, g.scheme.policy))
	const id = "{o-77}close"
	g.hold[id], g.lose[id] = 1, 1
	add := func(id string) {
		c.must(t, 201, "POST", "/v1/topics/orders/timers", fmt.Sprintf(`{"id":%q,"delay":"0s","payload":{"order":77}}`, id))
	}
	add(id)
	poll(t, guideLimit, "the third attempt is answered", func() bool {
		return strings.Contains(string(c.do("GET", "/v1/topics/orders/timers/"+id, "").body), `"state":"done"`)
	})
	g.mu.Lock()
	calls := g.calls[id]
	g.mu.Unlock()
	if len(calls) != 3 || calls[1].status != 200 || calls[2].status != 200 {
		t.Fatalf("%d calls: %+v", len(calls), calls)
	}

	g.running.kill() // state must be on disk before an answer
	done := strings.Count(g.running.stdout.String(), "did orders/"+id+" attempt 2\n")
	g.start(t)
	for _, a := range []struct {
		what string
		call guideCall
		edit func(http.Header)
		body string
		want int
	}{
		{"the first call, held up on its way", calls[0], nil, "", 409},
		{"the call that was done, once more", calls[1], nil, "", 409},
		{"another body", calls[2], nil, `{"order":78}`, 401},
		{"another fence", calls[2], func(h http.Header) { h.Set("Carillon-Fence", "18446744073709551615") }, "", 401},
		{"another timer", calls[2], func(h http.Header) { h.Set("Carillon-Timer", "other") }, "", 401},
		{"no signature of the headers", calls[2], func(h http.Header) { h.Del("Carillon-Signature") }, "", 401},
		{"no signature of the body", calls[2], func(h http.Header) { h.Del("Webhook-Signature") }, "", 401},
		{"a call of ten minutes ago", calls[2], func(h http.Header) {
			h.Set("Webhook-Timestamp", strconv.FormatInt(time.Now().Add(-10*time.Minute).Unix(), 10))
			g.scheme.signAgain(h, calls[2].body)
		}, "", 401},
		{"a new attempt of what was done", calls[2], func(h http.Header) {
			h.Set("Carillon-Fence", "9007199254740993") // as a float it would equal the next one
			g.scheme.signAgain(h, calls[2].body)
		}, "", 200},
		{"one with a fence that is one lower", calls[2], func(h http.Header) {
			h.Set("Carillon-Fence", "9007199254740992")
			g.scheme.signAgain(h, calls[2].body)
		}, "", 409},
		{"the highest fence there can be", calls[2], func(h http.Header) {
			h.Set("Carillon-Fence", "18446744073709551615")
			g.scheme.signAgain(h, calls[2].body)
		}, "", 200},
	} {
		header, body := a.call.header.Clone(), a.call.body
		if a.edit != nil {
			a.edit(header)
		}
		if a.body != "" {
			body = []byte(a.body)
		}
		if got := g.post(header, body); got != a.want {
			t.Errorf("%s: %d, want %d", a.what, got, a.want)
		}
	}
	add("next")
	poll(t, guideLimit, "the next timer is done", func() bool { return strings.Contains(g.running.stdout.String(), "did orders/next attempt 1\n") })
	if done != 1 || strings.Count(g.running.stdout.String(), "did ") != 1 {
		t.Errorf("done %d times, then printed %q\n%s", done, g.running.stdout.String(), g.running.stderr)
	}
}

// TestReceiversOfTheGuideAreShown: the guide's page links each file of the directory.
func TestReceiversOfTheGuideAreShown(t *testing.T) {
	page, err := os.ReadFile("../../docs/guides/receivers/README.md")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("../../docs/guides/receivers")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "README.md" && !strings.Contains(string(page), "]("+e.Name()) {
			t.Errorf("the page does not name %s", e.Name())
		}
	}
}
