package e2e

import (
	"context"
	"net/http"
	"net/http/httptest"
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
		receiver, err := goclient.NewReceiver(goclient.ReceiverOptions{Secrets: []string{secret}})
		signed[secret] = err == nil && receiver.Verify(req.Header, nil) == nil
	}
}

// TestRotationOfASecret: while a secret is rotated receivers that know the old one or the new one take every call, then those alone
// that know the new one.
func TestRotationOfASecret(t *testing.T) {
	t.Parallel()
	t.Run("in the clear", func(t *testing.T) { rotateSecret(t) })
	key := filepath.Join(t.TempDir(), "secrets.key")
	writeFile(t, key, strings.Repeat("5a", 32)+"\n")
	t.Run("sealed", func(t *testing.T) { rotateSecret(t, "--secrets-key", key) })
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
