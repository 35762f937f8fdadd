package node

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"carillon/test/testkit"
)

const pending = "/timers?state=scheduled,leased&limit=1000&payload=true"

// taken are the topics of a fixture whose timers were with a worker or a receiver. Their leases are
// over today, which gives them another attempt.
var taken = []string{"taken", "reported"}

// due are the topics of a fixture that have timers which are due already: after a restore these may
// have been called.
var due = append([]string{"pulled", "waiting", "outcomes", "retried"}, taken...)

// volatile are fields of a timer that are as they are at the moment.
var volatile = []string{"waits_for", "waits_on"}

// TestReleasesAreRead: this build opens the data directories of all releases so far, made by
// scripts/fixture.sh, and finds all that they had: pending timers, dead letters, history, topics
// with their policies and sealed secrets. It also finds all in its own restores of the releases'
// backups, and in the releases' restores of them.
func TestReleasesAreRead(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/release/*.tar.gz")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no releases", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".tar.gz"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			unpack(t, file, dir)
			r := release{t: t, dir: dir}
			n := r.open("data")
			r.same(n, "topics.json", "/v1/topics?limit=1000", "topics", "topic", volatile)
			for _, topic := range r.topics("timers") {
				if slices.Contains(taken, topic) {
					r.known(n, "data", topic)
				} else {
					r.same(n, "timers-"+topic+".json", "/v1/topics/"+topic+pending, "timers", "id", volatile)
				}
			}
			for _, topic := range r.topics("dead") {
				r.same(n, "dead-"+topic+".json", "/v1/topics/"+topic+"/dead?limit=1000", "timers", "id", volatile)
			}
			for _, topic := range r.topics("history") {
				r.same(n, "history-"+topic+".json", "/v1/topics/"+topic+"/history?limit=1000", "entries", "id", volatile)
			}
			if old, now := r.read("cluster.json")["cluster_id"], r.ask(n, "/v1/cluster")["cluster_id"]; old != now {
				t.Errorf("cluster %v, it was %v", now, old)
			}
			n.must(201, "POST", "/v1/topics/later/timers", `{"id":"new","delay":"1h"}`)

			again := filepath.Join(dir, "again")
			if _, err := Restore(RestoreConfig{From: filepath.Join(dir, "fixture.backup"), DataDir: again, Name: "fixture", SecretsKeyFile: filepath.Join(dir, "secrets.key")}); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"restored", "again"} {
				r.kept(r.open(name), name)
			}
		})
	}
}

// release is the data of a release, unpacked.
type release struct {
	t   *testing.T
	dir string
}

func (r *release) open(name string) *running {
	return start(r.t, filepath.Join(r.dir, name), func(c *Config) {
		c.Name, c.SecretsKeyFile = "fixture", filepath.Join(r.dir, "secrets.key")
	})
}

func (r *release) read(name string) (v map[string]any) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, name))
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	testkit.Must(r.t, err)
	return v
}

func (r *release) ask(n *running, path string) (v map[string]any) {
	r.t.Helper()
	testkit.Must(r.t, json.Unmarshal([]byte(n.must(200, "GET", path, "")), &v))
	return v
}

// topics are those of which the release left a list of that kind.
func (r *release) topics(kind string) (names []string) {
	r.t.Helper()
	files, err := filepath.Glob(filepath.Join(r.dir, kind+"-*.json"))
	if err != nil || len(files) == 0 {
		r.t.Fatal("the release has left none of", kind, err)
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), kind+"-"), ".json"))
	}
	return names
}

// byName are the elements of a list by one of their fields.
func byName(v map[string]any, list, field string) map[string]map[string]any {
	out := map[string]map[string]any{}
	for _, one := range v[list].([]any) {
		m := one.(map[string]any)
		out[m[field].(string)] = m
	}
	return out
}

// same compares an answer with the release's own answer. Fields that came later are not compared.
func (r *release) same(n *running, file, path, list, field string, but []string) {
	r.t.Helper()
	was, is := byName(r.read(file), list, field), byName(r.ask(n, path), list, field)
	if len(was) == 0 || !slices.Equal(slices.Sorted(maps.Keys(was)), slices.Sorted(maps.Keys(is))) {
		r.t.Errorf("%s: %d were there, %d are", path, len(was), len(is))
		return
	}
	for name := range was {
		for _, f := range but {
			delete(was[name], f)
		}
		if why := lacks(was[name], is[name]); why != "" {
			r.t.Errorf("%s: %s: %s", path, name, why)
		}
	}
}

// lacks names a field that is not as it was.
func lacks(was, is any) string {
	old, object := was.(map[string]any)
	now, still := is.(map[string]any)
	if !object || !still {
		if !reflect.DeepEqual(was, is) {
			b, _ := json.Marshal([]any{was, is})
			return string(b)
		}
		return ""
	}
	for name := range old {
		if why := lacks(old[name], now[name]); why != "" {
			return name + ": " + why
		}
	}
	return ""
}

// kept compares a restore with the release: which timers there are, when they are due, and their
// content; dead letters; topics with their policies and secrets.
func (r *release) kept(n *running, name string) {
	r.t.Helper()
	for _, topic := range r.topics("timers") {
		if !slices.Contains(due, topic) {
			r.known(n, name, topic)
		}
	}
	for _, topic := range r.topics("dead") {
		r.same(n, "dead-"+topic+".json", "/v1/topics/"+topic+"/dead?limit=1000", "timers", "id", volatile)
	}
	// Topics with timers that are overdue start paused, and what was due may have been called by now.
	r.same(n, "topics.json", "/v1/topics?limit=1000", "topics", "topic", []string{"paused", "counts", "oldest_overdue_ms"})
}

// known compares what clients gave to the timers of a topic.
func (r *release) known(n *running, name, topic string) {
	r.t.Helper()
	was := byName(r.read("timers-"+topic+".json"), "timers", "id")
	is := byName(r.ask(n, "/v1/topics/"+topic+pending), "timers", "id")
	if len(was) == 0 || len(was) != len(is) {
		r.t.Errorf("%s: %s: %d timers were there, %d are", name, topic, len(was), len(is))
	}
	for id := range was {
		for _, f := range []string{"due_ms", "payload", "payload_base64", "content_type", "labels", "repeat", "callback", "retry", "on_dead", "paused", "traceparent", "weight"} {
			if is[id] == nil || !reflect.DeepEqual(was[id][f], is[id][f]) {
				r.t.Errorf("%s: %s: %s of %s: %v, it was %v", name, topic, f, id, is[id][f], was[id][f])
			}
		}
	}
}

// unpack makes the files of an archive that is ours.
func unpack(t *testing.T, file, dir string) {
	t.Helper()
	f, err := os.Open(file)
	testkit.Must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	testkit.Must(t, err)
	for in := tar.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		testkit.Must(t, err)
		to := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, 0o700)
		} else if body, e := io.ReadAll(in); e != nil {
			err = e
		} else {
			err = os.WriteFile(to, body, 0o600)
		}
		testkit.Must(t, err)
	}
}
