package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// hoard is a set of large timers that are replaced repeatedly, so that the log rotates and
// snapshots are made.
type hoard struct {
	client  *client
	payload string

	mu       sync.Mutex
	versions []int // acknowledged, by timer
	bytes    int
}

const hoardWriters = 4

// write replaces timers until target bytes have been written, then calls crash while writers run.
func (h *hoard) write(t testing.TB, target int, crash func()) {
	t.Helper()
	done := make(chan struct{})
	var writers sync.WaitGroup
	for w := range hoardWriters {
		writers.Go(func() {
			for i := w; ; i = (i + hoardWriters) % len(h.versions) {
				select {
				case <-done:
					return
				default:
					h.replace(t, i)
				}
			}
		})
	}
	poll(t, 60*time.Second, "enough is written", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.bytes >= target
	})
	crash()
	close(done)
	writers.Wait()
}

func (h *hoard) replace(t testing.TB, i int) {
	a := h.client.do("PUT", timerPath("big", fmt.Sprintf("b%d", i)), fmt.Sprintf(`{"delay":"1h","payload":%s}`, h.payload))
	if effectOf(a) != acked {
		return
	}
	version, err := strconv.Atoi(strings.Trim(a.header.Get("ETag"), `"`))
	if err != nil {
		t.Errorf("ETag %q of %.200s", a.header.Get("ETag"), a.body)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions[i] = max(h.versions[i], version)
	h.bytes += len(h.payload)
}

// isWhole checks that each timer has at least its acknowledged version, and its whole payload.
func (h *hoard) isWhole(t testing.TB) {
	t.Helper()
	for i, v := range h.versions {
		if v == 0 {
			continue
		}
		if got := h.client.read(t, "big", fmt.Sprintf("b%d", i)); got.Version < v || len(got.Payload) != len(h.payload) {
			t.Errorf("b%d: acknowledged version %d, there is %d with %d bytes", i, v, got.Version, len(got.Payload))
		}
	}
}

// TestKillDuringSnapshots kills the node during snapshots and log rotation. All that was
// acknowledged is there, and the log is undamaged. Then the test damages snapshots.
func TestKillDuringSnapshots(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many kills")
	}
	random := seeded(t)
	dir := t.TempDir()
	node := serve(t, dir, "--shards", "2") // few shards, so that each soon needs a snapshot
	h := &hoard{client: newClient(node), payload: `"` + strings.Repeat("s", 200_000) + `"`, versions: make([]int, 32)}
	h.client.topic(t, "big", "http://127.0.0.1:9/", "")
	for range setting(t, "CARILLON_E2E_SNAPSHOTS", 2) {
		// Enough to make a snapshot due in each shard.
		h.write(t, h.bytes+70<<20+random.IntN(40<<20), node.kill)
		if code, out, says := command(t, "wal", "verify", dir); code != 0 {
			t.Fatalf("after kill -9: wal verify: code %d, %s%s", code, out, says)
		}
		node = serve(t, dir)
		h.client.use(node)
		h.isWhole(t)
	}
	node.stop(t)
	perShard := snapshotsByShard(t, dir)
	t.Logf("%d MB written; snapshots by shard: %v", h.bytes>>20, perShard)
	if len(perShard) == 0 {
		t.Fatal("no snapshot was made: the kills hit none")
	}
	for shard, list := range perShard { // two, and one that a kill may have left
		if len(list) > 3 {
			t.Errorf("shard %s has %d snapshots", shard, len(list))
		}
	}
	damageNewest(t, dir, h, perShard)
	damageAll(t, dir, h)
}

// damageNewest: with damaged newest snapshots a node starts from the previous ones and the log.
func damageNewest(t testing.TB, dir string, h *hoard, perShard map[string][]string) {
	t.Helper()
	for _, list := range perShard {
		newest := list[len(list)-1]
		flip(t, newest, sizeOf(t, newest)/2, 1)
		if code, _, says := command(t, "wal", "verify", dir); code != 1 || !strings.Contains(says, filepath.Base(newest)) {
			t.Errorf("wal verify: code %d, %s", code, says)
		}
	}
	node := serve(t, dir)
	h.client.use(node)
	h.isWhole(t)
	for _, list := range perShard {
		if newest := filepath.Base(list[len(list)-1]); !strings.Contains(node.stderr.String(), newest) {
			t.Errorf("the damaged %s is not named: %s", newest, node.stderr)
		}
	}
	node.kill()
}

// damageAll: with only damaged snapshots a node starts only if the log reaches back to the
// beginning. It must not start with missing timers.
func damageAll(t testing.TB, dir string, h *hoard) {
	t.Helper()
	for _, list := range snapshotsByShard(t, dir) {
		for _, path := range list {
			flip(t, path, sizeOf(t, path)/2, 2)
		}
	}
	node := launch(t, nil, dir)
	select {
	case <-node.stdout.first:
		h.client.use(node)
		h.isWhole(t)
		t.Log("without a whole snapshot: all was in the log")
	case <-node.exited:
		says := strings.TrimSpace(node.stderr.String())
		says = says[strings.LastIndexByte(says, '\n')+1:]
		if node.code != exitDown || !strings.HasPrefix(says, "carillon: ") || !strings.Contains(says, "snapshot") {
			t.Errorf("without a whole snapshot: code %d, stderr %s", node.code, says)
		}
		t.Logf("without a whole snapshot: %s", says)
	}
}

// snapshotsByShard lists each shard's snapshot files, oldest first.
func snapshotsByShard(t testing.TB, dir string) map[string][]string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "snapshots", "*.snap"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	out := map[string][]string{}
	for _, path := range list {
		shard, _, _ := strings.Cut(filepath.Base(path), "-")
		out[shard] = append(out[shard], path)
	}
	return out
}

func sizeOf(t testing.TB, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Size())
}
