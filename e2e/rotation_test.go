package e2e

import (
	"bytes"
	"context"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	goclient "carillon/client"
)

// signedReceivers answer by whether a call is signed by their secret.
type signedReceivers struct {
	mu  sync.Mutex
	got map[string]map[string]bool // by timer, by secret: whether it has signed the call
}

func (r *signedReceivers) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	signed := r.got[req.Header.Get("Carillon-Timer")]
	for secret := range signed {
		options := goclient.ReceiverOptions{Secrets: []string{secret}}
		if strings.HasPrefix(secret, "whpk_") {
			options = goclient.ReceiverOptions{PublicKeys: []string{secret}}
		}
		receiver, err := goclient.NewReceiver(options)
		signed[secret] = err == nil && receiver.Verify(req.Header, nil) == nil
	}
}

// TestRotationOfASecret: while a secret is rotated receivers that know the old one or the new one
// take every call, then those alone that know the new one.
func TestRotationOfASecret(t *testing.T) {
	t.Parallel()
	t.Run("in the clear", func(t *testing.T) { rotateSecret(t) })
	key := filepath.Join(t.TempDir(), "secrets.key")
	writeFile(t, key, strings.Repeat("5a", 32)+"\n")
	t.Run("sealed", func(t *testing.T) { rotateSecret(t, "--secrets-key", key) })
}

// TestFromASecretToAKey: receivers that share a secret change over to a key of which they know the
// public half alone. Whichever of the two they have, they take every call while both are there. The
// private half is in no answer and, with a key for secrets, in no file.
func TestFromASecretToAKey(t *testing.T) {
	sealing, dir := filepath.Join(t.TempDir(), "secrets.key"), t.TempDir()
	writeFile(t, sealing, strings.Repeat("5a", 32)+"\n")
	node := serve(t, dir, "--shards", "4", "--secrets-key", sealing)
	c, err := goclient.New([]string{node.url}, goclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	secret := goclient.NewSecret()
	receivers := &signedReceivers{got: map[string]map[string]bool{}}
	server := httptest.NewServer(receivers)
	t.Cleanup(server.Close)
	policy := goclient.Policy{Callback: &goclient.Callback{URL: server.URL}, Secrets: []string{secret}}
	_, err = c.PutTopic(ctx, "orders", policy)
	must(err)
	first, err := c.RotateSigningKey(ctx, "orders", "") // the node makes it
	must(err)
	private, given := goclient.NewSigningKey()
	_, err = c.RotateSigningKey(ctx, "orders", private)
	must(err)
	both, err := c.RotateSigningKey(ctx, "orders", private) // it may be repeated
	must(err)
	if len(both.Keys) != 2 || both.Keys[0] != given || both.Keys[1] != first.Keys[0] {
		t.Fatalf("%v", both.Keys)
	}
	expect := func(id string, bySecret, byFirst, byGiven bool) {
		t.Helper()
		want := map[string]bool{secret: bySecret, first.Keys[0]: byFirst, given: byGiven}
		receivers.mu.Lock()
		receivers.got[id] = map[string]bool{secret: false, first.Keys[0]: false, given: false}
		receivers.mu.Unlock()
		_, err := c.Add(ctx, "orders", goclient.Spec{ID: id, At: time.Now()})
		must(err)
		done := holdsWithinBy(20*time.Millisecond, 20*time.Second, func() bool {
			timer, err := c.Get(ctx, "orders", id)
			return err == nil && timer.State == goclient.Done
		})
		receivers.mu.Lock()
		defer receivers.mu.Unlock()
		if got := receivers.got[id]; !done || !maps.Equal(got, want) {
			t.Errorf("%s: done %v, signed %v, want %v", id, done, got, want)
		}
	}
	expect("all", true, true, true)
	if left, err := c.FinishKeyRotation(ctx, "orders", ""); err != nil || len(left.Keys) != 1 || left.Keys[0] != given {
		t.Fatal(left, err)
	}
	expect("secret-and-key", true, false, true)
	topic, err := c.Topic(ctx, "orders")
	must(err)
	if len(topic.Policy.SigningKeys) != 1 || topic.Policy.SigningKeys[0] != given {
		t.Errorf("%+v", topic.Policy)
	}
	topic.Policy.Secrets = nil
	_, err = c.PutTopic(ctx, "orders", topic.Policy) // what is shown can be put back, without the secret now
	must(err)
	expect("key", false, false, true)
	if node.stop(t); filesHold(t, dir, private[len("whsk_"):]) || !filesHold(t, dir, given) {
		t.Error("the private key can be read in the data directory, or the public one cannot")
	}
}

func rotateSecret(t *testing.T, flags ...string) {
	node := serve(t, t.TempDir(), append(flags, "--shards", "4")...)
	c, err := goclient.New([]string{node.url}, goclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	old, now := goclient.NewSecret(), goclient.NewSecret()
	receivers := &signedReceivers{got: map[string]map[string]bool{}}
	server := httptest.NewServer(receivers)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.PutTopic(ctx, "orders", goclient.Policy{Callback: &goclient.Callback{URL: server.URL}, Secrets: []string{old}, History: time.Hour}); err != nil {
		t.Fatal(err)
	}
	expect := func(id string, byOld, byNew bool) {
		t.Helper()
		receivers.mu.Lock()
		receivers.got[id] = map[string]bool{old: false, now: false}
		receivers.mu.Unlock()
		if _, err := c.Add(ctx, "orders", goclient.Spec{ID: id, At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		done := holdsWithinBy(20*time.Millisecond, 20*time.Second, func() bool {
			timer, err := c.Get(ctx, "orders", id)
			return err == nil && timer.State == goclient.Done
		})
		receivers.mu.Lock()
		defer receivers.mu.Unlock()
		if got := receivers.got[id]; !done || got[old] != byOld || got[now] != byNew {
			t.Errorf("%s: done %v, signed by the old secret %v, by the new one %v", id, done, got[old], got[now])
		}
	}
	expect("before", true, false)
	for range 2 { // it may be repeated
		if s, err := c.RotateSecret(ctx, "orders", now); err != nil || len(s.Fingerprints) != 2 {
			t.Fatal(s, err)
		}
	}
	expect("meanwhile", true, true)
	if s, err := c.FinishRotation(ctx, "orders", ""); err != nil || len(s.Fingerprints) != 1 {
		t.Fatal(s, err)
	}
	expect("after", false, true)
	if topic, err := c.Topic(ctx, "orders"); err != nil || topic.Policy.History != time.Hour {
		t.Errorf("the rest of the policy has changed: %+v, %v", topic, err)
	}
}

// filesHold says whether a text can be read in some file of a directory.
func filesHold(t *testing.T, dir, text string) (held bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		held = held || bytes.Contains(b, []byte(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return held
}
