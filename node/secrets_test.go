package node

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"carillon/test/testkit"
	"carillon/transport/callback/signing"
)

// The secrets of these tests, none of which may be read in a data directory.
const (
	signingText    = "whsec_c2lnbmluZy1zZWNyZXQtb2YtYS10b3BpYy0wMQ=="
	signingKeyText = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	publicKeyText  = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=" // which everybody may see
	topicBearer    = "Bearer topic-4d1f9c"
	timerBearer    = "Bearer timer-77e2ab"
	patchedKey     = "patched-key-10cc53"
	batchCookie    = "session=batch-5e90aa"
	redriveWord    = "redriven-word-b81c"
)

var allSecrets = []string{signingText, signingKeyText, topicBearer, timerBearer, patchedKey, batchCookie, redriveWord}

// shownIn lists the secrets that can be read in some file of a directory.
func shownIn(t *testing.T, dir string) (shown []string) {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, s := range allSecrets {
			found[s] = found[s] || bytes.Contains(b, []byte(s))
		}
		return err
	})
	testkit.Must(t, err)
	for _, s := range allSecrets {
		if found[s] {
			shown = append(shown, s)
		}
	}
	return shown
}

func secretsKey(of string) string {
	var lines []string
	for _, c := range of {
		lines = append(lines, strings.Repeat(fmt.Sprintf("%02x", c), 32))
	}
	return strings.Join(lines, "\n") + "\n"
}

// withKeys gives a node the keys of a file, by letters; "" none.
func withKeys(t *testing.T, of string) func(*Config) {
	return func(c *Config) {
		c.Logger = slog.New(slog.DiscardHandler)
		if of != "" {
			c.SecretsKeyFile = writeKeys(t, secretsKey(of), 0o600)
		}
	}
}

// signedByKey is the signature of a call's body by signingKeyText.
func signedByKey(t *testing.T, a *receivedFile) string {
	t.Helper()
	key, err := signing.ParseKey(signingKeyText)
	testkit.Must(t, err)
	text := a.header.Get("Webhook-Id") + "." + a.header.Get("Webhook-Timestamp") + "." + a.body
	return base64.StdEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
}

// secretiveWork does everything by which a secret gets into a node, and checks that each arrives
// where it belongs.
func secretiveWork(t *testing.T, r *running) {
	t.Helper()
	fail := true
	rec := newReceiver(t, func(a *receivedFile, w http.ResponseWriter) {
		if a.timer == "dies" && fail {
			w.WriteHeader(410)
		}
	})
	cb := fmt.Sprintf(`"callback":{"url":%q`, rec.URL)
	r.must(201, "PUT", "/v1/topics/s", `{`+cb+`,"headers":{"Authorization":"`+topicBearer+`","X-Tenant":"seven"}},"secrets":["`+signingText+`"],"signing_keys":["`+signingKeyText+`"]}`)
	soon := `"delay":"20ms",`
	r.must(201, "POST", "/v1/topics/s/timers", `{"id":"plain",`+soon+`"payload":1}`)
	r.must(201, "POST", "/v1/topics/s/timers", `{"id":"own",`+soon+cb+`,"headers":{"Authorization":"`+timerBearer+`","X-Own":"shown"}}}`)
	r.must(201, "PUT", "/v1/topics/s/timers/patched", `{"delay":"1h",`+cb+`,"headers":{"X-Api-Key":"wrong"}}}`)
	r.must(200, "PATCH", "/v1/topics/s/timers/patched", `{`+soon+cb+`,"headers":{"X-Api-Key":"`+patchedKey+`"}}}`)
	r.must(200, "POST", "/v1/topics/s/batch", `{"ops":[{"op":"add","id":"batched",`+soon+cb+`,"headers":{"Cookie":"`+batchCookie+`"}}},{"op":"add","id":"b2",`+soon+`"payload":2}]}`)
	r.must(201, "PUT", "/v1/topics/s/timers/kept", `{"delay":"1h",`+cb+`,"headers":{"X-Api-Key":"`+patchedKey+`"}}}`)
	r.must(200, "PATCH", "/v1/topics/s/timers/kept", `{`+soon+cb+`,"headers":{"X-Api-Key":"REDACTED","X-More":"1"}}}`)
	r.must(201, "POST", "/v1/topics/s/timers", `{"id":"dies",`+soon+`"payload":3}`)
	want := map[string][2]string{ // a header and its value
		"plain": {"Authorization", topicBearer}, "own": {"Authorization", timerBearer}, "patched": {"X-Api-Key", patchedKey},
		"batched": {"Cookie", batchCookie}, "b2": {"Authorization", topicBearer}, "kept": {"X-Api-Key", patchedKey}, "dies": {"Authorization", topicBearer},
	}
	arrivals := rec.await(t, len(want))
	for dead := ""; !strings.Contains(dead, `"dies"`); {
		dead = r.must(200, "GET", "/v1/topics/s/dead", "")
	}
	fail = false
	r.must(200, "POST", "/v1/topics/s/dead/redrive", `{"ids":["dies"],`+cb+`,"headers":{"X-Password":"`+redriveWord+`"}}}`)
	arrivals = append(arrivals, rec.await(t, len(want)+1)[len(want)])
	key, err := signing.ParseSecret(signingText)
	testkit.Must(t, err)
	for i, a := range arrivals {
		header := want[a.timer]
		if i == len(want) {
			header = [2]string{"X-Password", redriveWord}
		}
		if got := a.header.Get(header[0]); got != header[1] {
			t.Errorf("%s came with %s: %q, want %q", a.timer, header[0], got, header[1])
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(a.header.Get("Webhook-Id") + "." + a.header.Get("Webhook-Timestamp") + "." + a.body))
		if got, signed := a.header.Get("Webhook-Signature"), "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil))+" v1a,"+signedByKey(t, &a); got != signed {
			t.Errorf("%s is signed %s, want %s", a.timer, got, signed)
		}
	}
	shown := r.must(200, "GET", "/v1/topics/s", "") + r.must(200, "GET", "/v1/topics", "") + r.must(200, "GET", "/v1/topics/s/timers/own", "") +
		r.must(200, "GET", "/v1/topics/s/history", "") + r.must(200, "GET", "/v1/topics/s/timers?state=done&payload=true", "")
	for _, s := range append(slices.Clone(allSecrets), `\u0001`, "\x01") {
		if strings.Contains(shown, s) {
			t.Errorf("the API shows %q: %s", s, shown)
		}
	}
	if !strings.Contains(shown, `"X-Tenant":"seven"`) || !strings.Contains(shown, `"sha256:`) || !strings.Contains(shown, "shown") {
		t.Errorf("what is no secret is not shown: %s", shown)
	}
	var policy map[string]any
	testkit.Must(t, json.Unmarshal([]byte(r.must(200, "GET", "/v1/topics/s", "")), &policy))
	b, _ := json.Marshal(policy["policy"])
	r.must(200, "PUT", "/v1/topics/s", string(b)) // the shown value puts back the stored one
}

// TestNoSecretLiesInTheClear: with keys, nothing that a node writes (log, snapshots, history) shows
// a secret; without them the same look finds them all.
func TestNoSecretLiesInTheClear(t *testing.T) {
	for of, want := range map[string][]string{"a": nil, "": allSecrets} {
		t.Run("keys "+of, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := start(t, dir, withKeys(t, of))
			secretiveWork(t, r)
			testkit.Must(t, r.stop())
			if got := shownIn(t, dir); !slices.Equal(got, want) {
				t.Errorf("the directory shows %q, want %q", got, want)
			}
		})
	}
}

// sealedBy is with which keys, as letters, the node's copy of the topics is sealed.
func (r *running) sealedBy(letters string) map[string]int {
	counts := map[string]int{}
	for id, n := range r.node.run.Load().core.Load().member.State.SealedBy() {
		name := id
		for _, c := range letters {
			if keys, _, err := (Credentials{SecretsKeyFile: writeKeys(r.t, secretsKey(string(c)), 0o600)}).readSecretsKeys(); err == nil && keys.First() == id {
				name = string(c)
			}
		}
		counts[name] += n
	}
	return counts
}

func (r *running) awaitSealedBy(want map[string]int) {
	r.t.Helper()
	// The leader does it within a second.
	until(r.t, fmt.Sprintf("sealed by %v", want), func() bool { return maps.Equal(r.sealedBy("ab"), want) })
}

// TestSecretsThroughTheLifeOfKeys: a node without keys gets one, the key is changed, the old one
// goes. The topics' secrets follow by themselves, timers made under any of them arrive, and an add
// that is repeated at each stage is the same add.
func TestSecretsThroughTheLifeOfKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	dir, rec := t.TempDir(), newReceiver(t, nil)
	cb := fmt.Sprintf(`"callback":{"url":%q`, rec.URL)
	add := `{"id":"same","at":"2032-01-01T00:00:00Z",` + cb + `,"headers":{"Authorization":"` + timerBearer + `"}}}`
	stage := func(of string, want map[string]int) *running {
		t.Helper()
		r := start(t, dir, withKeys(t, of))
		r.must(map[bool]int{true: 201, false: 200}[of == ""], "POST", "/v1/topics/s/timers", add)
		r.must(201, "POST", "/v1/topics/s/timers", fmt.Sprintf(`{"id":"at%s","delay":"1h",%s,"headers":{"X-Key":"key:%s"}}}`, of, cb, of))
		r.awaitSealedBy(want)
		return r
	}
	first := start(t, dir, withKeys(t, ""))
	first.must(201, "PUT", "/v1/topics/s", `{`+cb+`,"headers":{"Authorization":"`+topicBearer+`"}},"secrets":["`+signingText+`"]}`)
	testkit.Must(t, first.stop())
	var last *running
	for _, s := range []struct {
		of   string
		want map[string]int
	}{{"", map[string]int{"": 2}}, {"a", map[string]int{"a": 2}}, {"ba", map[string]int{"b": 2}}} {
		if last != nil {
			testkit.Must(t, last.stop())
		}
		last = stage(s.of, s.want)
	}
	scrape := last.must(200, "GET", "/metrics", "")
	// Timers that were made under the old key keep it.
	for of, n := range map[string]int{"cluster": 1, "topics": 1, "timers": 2} {
		if got := strings.Count(scrape, `,of="`+of+`"} `); got != n || strings.Contains(scrape, `key="none"`) {
			t.Errorf("%d keys of %s are counted, want %d: %s", got, of, n, scrape)
		}
	}
	for _, id := range []string{"at", "ata", "atba", "same"} {
		last.must(200, "POST", "/v1/topics/s/timers/"+id+"/fire", "")
	}
	for _, a := range rec.await(t, 4) {
		want, name := "key:"+strings.TrimPrefix(a.timer, "at"), "X-Key"
		if a.timer == "same" {
			want, name = timerBearer, "Authorization"
		}
		if got := a.header.Get(name); got != want {
			t.Errorf("%s came with %q, want %q", a.timer, got, want)
		}
	}
}

// TestNodeWithoutTheKey: a node that lacks the key of its secrets is not ready and says which key
// to give it. Calls that need none go on; one that needs it waits, loses no attempt, and goes out
// once the file has the key and is read again.
func TestNodeWithoutTheKey(t *testing.T) {
	t.Parallel()
	dir, rec := t.TempDir(), newReceiver(t, nil)
	cb := fmt.Sprintf(`"callback":{"url":%q`, rec.URL)
	r := start(t, dir, withKeys(t, "a"))
	r.must(201, "PUT", "/v1/topics/open", `{`+cb+`}}`)
	r.must(201, "PUT", "/v1/topics/closed", `{`+cb+`},"secrets":["`+signingText+`"]}`)
	r.must(201, "PUT", "/v1/topics/open/timers/own", `{"delay":"1h",`+cb+`,"headers":{"X-Key":"`+patchedKey+`"}}}`)
	r.must(201, "PUT", "/v1/topics/open/timers/plain", `{"delay":"1h"}`)
	r.must(201, "PUT", "/v1/topics/closed/timers/signed", `{"delay":"1h"}`)
	testkit.Must(t, r.stop())

	file := writeKeys(t, secretsKey("b"), 0o600)
	r = startUnready(t, dir, func(c *Config) { c.SecretsKeyFile = file })
	r.awaitBody(503, "/readyz", "lacks the secrets key")
	r.awaitBody(200, "/metrics", "\ncarillon_ready 0\n")
	r.awaitBody(200, "/metrics", "\ncarillon_unfit 1\n")
	for _, timer := range []string{"open/timers/own", "open/timers/plain", "closed/timers/signed"} {
		r.must(200, "POST", "/v1/topics/"+timer+"/fire", "")
	}
	if a := rec.await(t, 1)[0]; a.timer != "plain" {
		t.Errorf("%s arrived", a.timer)
	}
	r.must(503, "POST", "/v1/topics/open/timers", `{"delay":"1h",`+cb+`,"headers":{"X-Key":"x"}}}`)
	for _, at := range []string{"open/timers/own", "closed/timers/signed"} {
		topic, id, _ := strings.Cut(at, "/timers/")
		if v := r.timer(topic, id); v["state"] != "scheduled" || v["attempts"] != 0.0 || v["waits_for"] != "leader" || v["waits_on"] != "its node lacks a key of the topic's secrets" {
			t.Errorf("%s: %v", at, v)
		}
	}
	r.awaitBody(200, "/v1/topics/closed", `"waiting":{"leader":1}`)
	testkit.Must(t, os.WriteFile(file, []byte(secretsKey("ba")), 0o600))
	testkit.Must(t, r.node.Reload())
	for _, a := range rec.await(t, 3)[1:] {
		if a.timer == "own" && a.header.Get("X-Key") != patchedKey || a.timer == "signed" && a.header.Get("Webhook-Signature") == "" || a.attempt != 1 {
			t.Errorf("%s came as attempt %d with %v", a.timer, a.attempt, a.header)
		}
	}
	r.awaitBody(200, "/readyz", "")
	r.awaitBody(200, "/metrics", "\ncarillon_ready 1\n")
	testkit.Must(t, os.WriteFile(file, []byte("no key"), 0o600))
	if err := r.node.Reload(); err == nil || !strings.Contains(err.Error(), "secrets-key: ") {
		t.Errorf("a file without keys is taken: %v", err)
	}
	r.must(201, "POST", "/v1/topics/open/timers", `{"delay":"1h",`+cb+`,"headers":{"X-Key":"x"}}}`)
}

// TestNodeWithoutKeysTakesNoSecrets: in a cluster that seals, a node without its keys does not put
// a secret beside them, neither in the clear nor under a key of its own, which no other node may
// have.
func TestNodeWithoutKeysTakesNoSecrets(t *testing.T) {
	for name, of := range map[string]string{"no keys": "", "another key": "b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := start(t, dir, withKeys(t, "a"))
			r.must(201, "PUT", "/v1/topics/t/timers/kept", `{"delay":"1h","callback":{"url":"http://127.0.0.1:9/"}}`)
			testkit.Must(t, r.stop())
			r = startUnready(t, dir, withKeys(t, of))
			r.awaitBody(503, "/readyz", "lacks the secrets key")
			takesNoSecrets(t, r)
			if got := r.sealedBy("b")["b"]; got != 0 {
				t.Errorf("%d secrets are sealed by a key that only this node has", got)
			}
			testkit.Must(t, r.stop())
			if got := shownIn(t, dir); len(got) > 0 {
				t.Errorf("the directory shows %q", got)
			}
		})
	}
}

func takesNoSecrets(t *testing.T, r *running) {
	t.Helper()
	for _, c := range [][3]string{
		{"PUT", "/v1/topics/s", `{"callback":{"url":"http://127.0.0.1:9/"},"secrets":["` + signingText + `"]}`},
		{"PUT", "/v1/topics/s", `{"callback":{"url":"http://127.0.0.1:9/","headers":{"Authorization":"` + topicBearer + `"}}}`},
		{"POST", "/v1/topics/t/timers", `{"delay":"1h","callback":{"url":"http://127.0.0.1:9/","headers":{"Authorization":"` + timerBearer + `"}}}`},
		{"PATCH", "/v1/topics/t/timers/kept", `{"callback":{"headers":{"X-Key":"` + patchedKey + `"}}}`},
	} {
		if body := r.must(503, c[0], c[1], c[2]); !strings.Contains(body, "--secrets-key") {
			t.Errorf("%s: %s", c[1], body)
		}
	}
	batch := r.must(200, "POST", "/v1/topics/t/batch", `{"ops":[{"op":"add","delay":"1h","callback":{"url":"http://127.0.0.1:9/","headers":{"Cookie":"`+batchCookie+`"}}},{"op":"add","delay":"1h","callback":{"url":"http://127.0.0.1:9/"}}]}`)
	if !strings.Contains(batch, `[{"status":503,"id"`) || !strings.Contains(batch, `,{"status":201,"id"`) {
		t.Errorf("batch: %s", batch)
	}
	r.must(201, "PUT", "/v1/topics/s", `{"callback":{"url":"http://127.0.0.1:9/","headers":{"X-Tenant":"seven"}}}`)
}

// TestLostSecretsKey: no copy of the key is left. The node starts with another and with all that it
// can do without; told that the key is lost it is ready, takes secrets again and pulls, and the
// topic's calls, which have lost no attempt, go out once it has new secrets.
func TestLostSecretsKey(t *testing.T) {
	t.Parallel()
	dir, rec := t.TempDir(), newReceiver(t, nil)
	cb := fmt.Sprintf(`{"callback":{"url":%q}`, rec.URL)
	r := start(t, dir, withKeys(t, "a"))
	r.must(201, "PUT", "/v1/topics/s", cb+`,"secrets":["`+signingText+`"]}`)
	r.must(201, "PUT", "/v1/topics/open", cb+`}`)
	r.must(201, "PUT", "/v1/topics/pulled", `{"delivery":"pull"}`)
	r.must(201, "POST", "/v1/topics/s/timers", `{"id":"waits","delay":"1s","payload":1}`)
	lost := r.node.run.Load().vault.keys.Load().First()
	testkit.Must(t, r.stop())

	file := writeKeys(t, secretsKey("b"), 0o600)
	with := func(c *Config) { c.Logger, c.SecretsKeyFile = slog.New(slog.DiscardHandler), file }
	r = startUnready(t, dir, with)
	r.awaitBody(503, "/readyz", lost)
	r.must(201, "POST", "/v1/topics/open/timers", `{"id":"goes","delay":"1ms","payload":1}`)
	if got := rec.await(t, 1); got[0].timer != "goes" {
		t.Fatalf("%s was called", got[0].timer)
	}
	r.must(503, "POST", "/v1/topics/pulled/pull", `{"wait":"0s"}`)
	locked := `carillon_topic_locked{topic="s"} 1`
	if scrape := r.must(200, "GET", "/metrics", ""); !strings.Contains(scrape, locked) || strings.Contains(scrape, `carillon_topic_locked{topic="open"}`) {
		t.Errorf("the metrics do not say which topic is locked: %s", scrape)
	}

	testkit.Must(t, os.WriteFile(file, []byte(secretsKey("b")+"lost "+lost+"\n"), 0o600))
	testkit.Must(t, r.node.Reload())
	r.awaitBody(200, "/readyz", "")
	r.must(201, "POST", "/v1/topics/pulled/timers", `{"id":"p","delay":"0s"}`)
	until(t, "a consumer is given a timer", func() bool {
		return strings.Contains(r.must(200, "POST", "/v1/topics/pulled/pull", `{"wait":"1s"}`), `"p"`)
	})
	if v := r.timer("s", "waits"); v["state"] != "scheduled" || v["attempts"] != 0.0 {
		t.Errorf("with secrets that cannot be opened: %v", v)
	}
	r.must(200, "POST", "/v1/topics/s/secrets/rotate", `{}`)
	r.must(200, "POST", "/v1/topics/s/secrets/finish", ``)
	if got := rec.await(t, 2)[1]; got.timer != "waits" || got.attempt != 1 || got.header.Get("Webhook-Signature") == "" {
		t.Errorf("with new secrets: %+v", got)
	}
	if scrape := r.must(200, "GET", "/metrics", ""); strings.Contains(scrape, "carillon_topic_locked{") {
		t.Error("a topic is still said to be locked")
	}
	testkit.Must(t, r.stop())
	last := start(t, dir, with)
	testkit.Must(t, last.stop())
}
