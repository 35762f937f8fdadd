package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var nodeSecrets = []string{
	"whsec_c2lnbmluZy1zZWNyZXQtb2YtYS10b3BpYy0wMQ==", "Bearer topic-4d1f9c", "Bearer timer-77e2ab", "patched-key-10cc53",
}

// readable returns the secrets that the bytes contain.
func readable(b []byte) (list []string) {
	for _, s := range nodeSecrets {
		if bytes.Contains(b, []byte(s)) {
			list = append(list, s)
		}
	}
	return list
}

// readableIn returns the secrets that files in the directory contain.
func readableIn(t testing.TB, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		list = append(list, readable(b)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// useSecrets adds timers with secret headers through every member, fires them, and waits for the
// calls. No history may show a secret.
func useSecrets(t *testing.T, c *cluster) {
	t.Helper()
	rec := newReceiver(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		authorization, key := nodeSecrets[1], "" // the topic's, of a timer that has no headers
		switch {
		case r.Header.Get("X-Own") != "":
			authorization = nodeSecrets[2]
		case r.Header.Get("X-Api-Key") != "": // changed: its headers take the place of all others
			authorization, key = "", nodeSecrets[3]
		}
		if r.Header.Get("Authorization") != authorization || r.Header.Get("X-Api-Key") != key {
			w.WriteHeader(500)
		}
		if r.Header.Get("Webhook-Signature") == "" {
			w.WriteHeader(500)
		}
	})
	cb := fmt.Sprintf(`"callback":{"url":%q,"headers":`, rec.url())
	client := c.members[0].client
	client.must(t, 201, "PUT", "/v1/topics/s", `{`+cb+`{"Authorization":"`+nodeSecrets[1]+`"}},"secrets":["`+nodeSecrets[0]+`"]}`)
	calls := 0
	for m, member := range c.members {
		for i := range 12 { // some are for shards that another node leads
			id := fmt.Sprintf("t%d-%d", m, i)
			path := "/v1/topics/s/timers/" + id
			poll(t, patience, "the topic is known", func() bool { return member.client.do("GET", "/v1/topics/s", "").status == 200 })
			own := `{"delay":"1h",` + cb + `{"Authorization":"` + nodeSecrets[2] + `","X-Own":"1"}}}`
			switch i % 3 {
			case 0:
				member.client.must(t, 201, "PUT", path, own)
			case 1:
				member.client.must(t, 201, "PUT", path, own)
				member.client.must(t, 200, "PATCH", path, `{`+cb+`{"X-Api-Key":"`+nodeSecrets[3]+`"}}}`)
			case 2:
				member.client.must(t, 201, "PUT", path, `{"delay":"1h"}`)
			}
			member.client.must(t, 200, "POST", path+"/fire", "")
			calls++
		}
	}
	poll(t, patience, "all calls have come", func() bool { return rec.count() >= calls })
	for _, member := range c.members {
		for i := range 12 {
			if tm := member.client.read(t, "s", fmt.Sprintf("t%d-%d", 0, i)); tm.State != "done" {
				t.Errorf("%+v", tm)
			}
		}
		answer := member.client.must(t, 200, "GET", "/v1/topics/s/history?limit=100", "")
		if list := readable(answer.body); len(list) > 0 {
			t.Errorf("%s shows %q", member.name, list)
		}
	}
}

// TestSecretsAreSealedBetweenNodesAndAtRest: with --secrets-key neither the data directories nor
// the traffic between nodes, which is unencrypted here, contains a secret. Without the key the same
// search finds every secret in both.
func TestSecretsAreSealedBetweenNodesAndAtRest(t *testing.T) {
	t.Parallel()
	needCluster(t)
	for name, sealed := range map[string]bool{"with keys": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			tap := &relay{}
			defer tap.close()
			members := loopbackMembers(t, 3)
			for _, m := range members {
				for _, address := range []string{m.peer, m.gossip} {
					_, port, _ := net.SplitHostPort(address)
					tap.at(t, "127.0.0.2:"+port, address)
				}
			}
			flags := []string{"--advertise", "127.0.0.2"}
			if sealed {
				key := filepath.Join(t.TempDir(), "secrets.key")
				writeFile(t, key, strings.Repeat("5a", 32)+"\n")
				flags = append(flags, "--secrets-key", key)
			}
			c := &cluster{keyless: true, flags: flags, members: members}
			for _, m := range members {
				c.start(t, m, "--shards", "16", "--bootstrap-expect", "3")
			}
			c.awaitHealthy(t)
			useSecrets(t, c)
			for _, m := range members {
				m.process().stop(t)
			}
			tap.close()
			var want []string
			if !sealed {
				want = slices.Sorted(slices.Values(nodeSecrets))
			}
			tap.mu.Lock()
			got, passed := readable(tap.seen.Bytes()), tap.seen.Len()
			tap.mu.Unlock()
			if slices.Sort(got); !slices.Equal(got, want) || passed < 100_000 {
				t.Errorf("what passed between nodes (%d bytes) shows %q, want %q", passed, got, want)
			}
			for _, m := range members {
				if got := readableIn(t, m.dir); !slices.Equal(got, want) {
					t.Errorf("the directory of %s shows %q, want %q", m.name, got, want)
				}
			}
		})
	}
}

// TestSecretsKeyComesNodeByNode: a rolling restart gives a running cluster the key. Nodes without
// it hand over their leaderships. In the end all topics are sealed. Then the key is rotated by
// SIGHUP.
func TestSecretsKeyComesNodeByNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	useSecrets(t, c)
	key := filepath.Join(t.TempDir(), "secrets.key")
	was, next := strings.Repeat("5a", 32), strings.Repeat("a5", 32)
	writeFile(t, key, was+"\n")
	for _, m := range c.members {
		m.process().stop(t)
		c.start(t, m, "--secrets-key", key)
		poll(t, formLimit, m.name+" is ready", func() bool { return m.client.do("GET", "/readyz", "").status == 200 })
	}
	c.awaitHealthy(t)
	sealed := func(of string) (ids map[string]bool) {
		ids = map[string]bool{}
		for _, line := range strings.Split(string(c.members[0].client.do("GET", "/metrics", "").body), "\n") {
			if rest, ok := strings.CutPrefix(line, `carillon_sealed_secrets{key="`); ok && strings.Contains(rest, `of="`+of+`"`) {
				id, _, _ := strings.Cut(rest, `"`)
				ids[id] = true
			}
		}
		return ids
	}
	oneOther := func(than string) func() bool {
		return func() bool {
			ids := sealed("topics")
			return len(ids) == 1 && !ids[than] && !ids["none"]
		}
	}
	poll(t, patience, "the topics are sealed", oneOther(""))
	first := ""
	for id := range sealed("topics") {
		first = id
	}
	c.members[0].client.must(t, 200, "DELETE", "/v1/topics/s?force=true", "")
	useSecrets(t, c)
	for _, lines := range []string{was + "\n" + next, next + "\n" + was} {
		writeFile(t, key, lines+"\n")
		for _, m := range c.members {
			hangUp(t, m.process())
		}
	}
	poll(t, patience, "the topics are sealed by the new key", oneOther(first))
	c.awaitHealthy(t)
}

// TestSecretsKeyIsLost: all copies of the key are lost. With another key the nodes serve timers
// that need no secret. Once told that the key is lost they are ready. A waiting timer is called, as
// its first attempt, once its topic has a new secret.
func TestSecretsKeyIsLost(t *testing.T) {
	t.Parallel()
	needCluster(t)
	rec := newReceiver(t, nil)
	dir := t.TempDir()
	lost, next := filepath.Join(dir, "lost.key"), filepath.Join(dir, "next.key")
	writeFile(t, lost, strings.Repeat("5a", 32)+"\n")
	writeFile(t, next, strings.Repeat("a5", 32)+"\n")
	c := found(t, loopbackMembers(t, 3), "--secrets-key", lost)
	first := c.members[0].client
	cb := fmt.Sprintf(`{"callback":{"url":%q}`, rec.url())
	first.must(t, 201, "PUT", "/v1/topics/signed", cb+`,"secrets":["`+nodeSecrets[0]+`"]}`)
	first.must(t, 201, "PUT", "/v1/topics/plain", cb+`}`)
	first.must(t, 201, "POST", "/v1/topics/signed/timers", `{"id":"waits","delay":"15s","payload":1}`)
	_, rest, _ := strings.Cut(string(first.must(t, 200, "GET", "/metrics", "").body), `carillon_sealed_secrets{key="`)
	id, _, _ := strings.Cut(rest, `"`)
	for _, m := range c.members {
		m.process().stop(t)
	}
	for _, m := range c.members {
		c.start(t, m, "--secrets-key", next)
	}
	poll(t, formLimit, "a timer without a secret is taken", func() bool {
		return first.do("PUT", "/v1/topics/plain/timers/goes", `{"delay":"0s","payload":1}`).status/100 == 2
	})
	poll(t, formLimit, "it is called", func() bool { return rec.count() == 1 })
	for _, m := range c.members {
		poll(t, formLimit, m.name+" says which key it lacks", func() bool {
			a := m.client.do("GET", "/readyz", "")
			return a.status == 503 && strings.Contains(string(a.body), id)
		})
	}
	writeFile(t, next, strings.Repeat("a5", 32)+"\nlost "+id+"\n")
	for _, m := range c.members {
		hangUp(t, m.process())
	}
	c.awaitHealthy(t)
	if text := string(first.must(t, 200, "GET", "/metrics", "").body); !strings.Contains(text, `carillon_topic_locked{topic="signed"} 1`) {
		t.Error("the metrics do not name the topic whose calls wait")
	}
	if n := rec.count(); n != 1 {
		t.Errorf("%d calls, though the topic's secret cannot be opened", n)
	}
	first.must(t, 200, "POST", "/v1/topics/signed/secrets/rotate", "{}")
	first.must(t, 200, "POST", "/v1/topics/signed/secrets/finish", "")
	poll(t, patience, "what waited is called", func() bool { return first.read(t, "signed", "waits").State == "done" })
	if got := first.read(t, "signed", "waits"); got.Attempts != 1 {
		t.Errorf("called at attempt %d", got.Attempts)
	}
}
