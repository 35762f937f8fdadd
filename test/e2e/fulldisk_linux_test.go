package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A disk is low below 256 MiB of free space, and no longer low a quarter above that.
const (
	smallDisk  = "size=400m"
	fillerSize = 220 << 20
)

// smallDiskDir mounts a small file system.
func smallDiskDir(t testing.TB) string {
	t.Helper()
	return diskOf(t, smallDisk)
}

func diskOf(t testing.TB, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("e2e", dir, "tmpfs", 0, size); err != nil {
		t.Skipf("mounting a tmpfs is not permitted (%v): a full disk is not tried", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// fillWhole shrinks a disk of size smallDisk to its contents, so that no byte is free. free
// restores its size.
func fillWhole(t testing.TB, dir string) (free func()) {
	t.Helper()
	return fillButFor(t, dir, 0)
}

// fillButFor leaves so many blocks free.
func fillButFor(t testing.TB, dir string, blocks int64) (free func()) {
	t.Helper()
	resize := func(size string) error { return syscall.Mount("e2e", dir, "tmpfs", syscall.MS_REMOUNT, size) }
	for tries := 0; ; tries++ { // the node may write meanwhile
		var s syscall.Statfs_t
		if err := syscall.Statfs(dir, &s); err != nil {
			t.Fatal(err)
		}
		err := resize(fmt.Sprintf("size=%d", (int64(s.Blocks)-int64(s.Bfree)+blocks)*s.Bsize))
		if err == nil {
			break
		}
		if tries == 100 {
			t.Fatalf("the disk cannot be made smaller: %v", err)
		}
	}
	return func() {
		if err := resize(smallDisk); err != nil {
			t.Error(err)
		}
	}
}

// fill allocates a file of so many bytes; free removes it.
func fill(t testing.TB, dir string, bytes int64) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for tries := 0; ; tries++ { // the node may use some space first
		err := syscall.Fallocate(int(f.Fd()), 0, 0, bytes)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.ENOSPC) || tries == 100 {
			t.Fatalf("fill: %v", err)
		}
		bytes = min(bytes, freeBytes(t, dir))
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

// TestDiskFillsUp: on a low disk adds are refused within two seconds, everything else works, and
// adds work again once there is space.
func TestDiskFillsUp(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	dir := smallDiskDir(t)
	rcv := newReceiver(t, nil)
	node := serve(t, filepath.Join(dir, "data"))
	c := newClient(node)
	c.topic(t, "full", rcv.url(), "")
	add := func(id, delay string) answer {
		return c.do("POST", "/v1/topics/full/timers", fmt.Sprintf(`{"id":%q,"delay":%q,"payload":1}`, id, delay))
	}
	for i := range 20 {
		if a := add(fmt.Sprintf("f%d", i), "1h"); a.status != 201 {
			t.Fatalf("add on an empty disk: %d %s", a.status, a.body)
		}
	}
	var n atomic.Int64
	var refusal answer
	var free func()
	refusedAfter := time.Hour
	for try := 0; try < 5 && refusedAfter > 2*time.Second; try++ { // the best of five: the machine may be busy
		if try > 0 {
			free()
			poll(t, patience, "adds are taken again", func() bool { return add(fmt.Sprintf("g%d", n.Add(1)), "1h").status == 201 })
		}
		free = fill(t, dir, fillerSize)
		filled := time.Now()
		poll(t, patience, "adds are refused", func() bool {
			refusal = add(fmt.Sprintf("g%d", n.Add(1)), "1h")
			return refusal.status != 201
		})
		refusedAfter = time.Since(filled)
	}
	if refusal.status != 503 || refusal.code() != "low_disk" || refusal.header.Get("Retry-After") == "" {
		t.Errorf("refused by %d %s %s, Retry-After %q", refusal.status, refusal.code(), refusal.body, refusal.header.Get("Retry-After"))
	}
	if refusedAfter > 2*time.Second {
		t.Errorf("adds were taken for %v on a full disk", refusedAfter)
	}
	// The refusal must last, and everything else must work.
	for i := range 10 {
		id := fmt.Sprintf("f%d", i)
		if a := add("h"+strconv.Itoa(i), "1h"); a.status != 503 {
			t.Errorf("add: %d", a.status)
		}
		c.must(t, 200, "GET", timerPath("full", id), "")
		if a := c.must(t, 200, "DELETE", timerPath("full", id), ""); a.outcome() != "prevented" {
			t.Errorf("cancel: %s", a.body)
		}
		fires := "f" + strconv.Itoa(10+i)
		c.must(t, 200, "POST", timerPath("full", fires)+"/fire", "")
		poll(t, patience, "a timer fires on a full disk", func() bool { return c.read(t, "full", fires).State == "done" })
	}
	free()
	freed := time.Now()
	poll(t, patience, "adds are taken again", func() bool { return add(fmt.Sprintf("i%d", n.Add(1)), "1h").status == 201 })
	t.Logf("adds refused %v after the disk was full, taken again %v after it was not", refusedAfter, time.Since(freed))
	node.stop(t)
	serve(t, filepath.Join(dir, "data")).stop(t)
}

// TestDiskOfAFollowerFillsUp: one node's disk is low. All nodes refuse adds to shards in which it
// votes, and name it. No node exits, everything else works, and adds work again once there is
// space.
func TestDiskOfAFollowerFillsUp(t *testing.T) {
	t.Parallel()
	dir := smallDiskDir(t)
	members := loopbackMembers(t, 3)
	low := members[1]
	low.dir = filepath.Join(dir, "data")
	c := found(t, members)
	members[0].client.topic(t, "low", "http://127.0.0.1:9/", "")
	added := 0
	add := func(m *member) answer {
		added++
		return m.client.do("POST", "/v1/topics/low/timers", fmt.Sprintf(`{"id":"t%d","delay":"1h","payload":1}`, added))
	}
	for i := range 30 {
		if a := add(members[i%3]); a.status != 201 {
			t.Fatalf("add on empty disks: %d %s", a.status, a.body)
		}
	}
	free := fill(t, dir, fillerSize)
	for _, m := range members {
		refused := 0
		// Adds go to different shards: ten refusals in a row.
		poll(t, patience, "adds are refused", func() bool {
			if a := add(m); a.status != 503 || a.code() != "low_disk" {
				refused = 0
			} else if refused++; !strings.Contains(string(a.body), low.name+" has ") || !strings.Contains(string(a.body), low.dir) || a.header.Get("Retry-After") != "30" {
				t.Fatalf("%s refuses with %s, Retry-After %s", m.name, a.body, a.header.Get("Retry-After"))
			}
			return refused == 10
		})
	}
	for i := range 9 {
		id := fmt.Sprintf("t%d", i+1)
		members[i%3].client.must(t, 200, "GET", timerPath("low", id), "")
		members[i%3].client.must(t, 200, "DELETE", timerPath("low", id), "")
	}
	free()
	for _, m := range members {
		taken := 0
		poll(t, patience, "adds are taken", func() bool {
			if a := add(m); a.status != 201 {
				taken = 0
				return false
			}
			taken++
			return taken == 10
		})
		if !m.process().alive() {
			t.Errorf("%s has ended", m.name)
		}
	}
	text := low.process().stderr.String()
	if !strings.Contains(text, "a disk is low") || !strings.Contains(text, "has room again") {
		t.Errorf("%s does not say when it is low: %s", low.name, tail(text, 500))
	}
	c.awaitHealthy(t)
}

// TestDiskFullToTheLastByte: a log without space waits for it. No change without space is
// acknowledged, no acknowledged change is lost, and the node continues once there is space.
func TestDiskFullToTheLastByte(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	dir := smallDiskDir(t)
	node := serve(t, filepath.Join(dir, "data"))
	c := newClient(node)
	c.topic(t, "brim", "http://127.0.0.1:9/", "")
	payload := strings.Repeat("p", 4000)
	var kept []string
	for i := range 200 {
		id := fmt.Sprintf("k%d", i)
		c.must(t, 201, "POST", "/v1/topics/brim/timers", fmt.Sprintf(`{"id":%q,"delay":"1h","payload":%q}`, id, payload))
		kept = append(kept, id)
	}
	version := map[string]int{}
	patched := 0
	// Patches are large so that few of them fill the disk before the node notices that it is low.
	large := strings.Repeat("p", 60_000)
	patch := func() answer {
		id := kept[patched%len(kept)]
		a := c.do("PATCH", timerPath("brim", id), fmt.Sprintf(`{"payload":"%d %s"}`, patched, large))
		if patched++; a.status == 200 {
			version[id] = a.timer(t).Version
		}
		return a
	}
	var free func()
	var refusal answer
	isFull := func() bool { return strings.Contains(node.stderr.String(), "the disk is full") }
	// The node may notice that the disk is low before it is full. It then refuses patches, and
	// their frames do not reach the end of the disk.
	for tries := 0; !isFull(); tries++ {
		if tries == 20 {
			t.Fatalf("the log never met the end of the disk: %d %s: %s", refusal.status, refusal.body, tail(node.stderr.String(), 300))
		}
		if free != nil {
			free()
			poll(t, patience, "patches are taken again", func() bool { return patch().status == 200 })
		}
		free = fillWhole(t, dir)
		for n := 0; n < 2000; n++ { // until their frames find no space
			if refusal = patch(); refusal.status != 200 {
				break
			}
		}
		if refusal.status != 503 || !node.alive() {
			t.Fatalf("after %d patches: %d %s (%v); the node lives: %v: %s", patched, refusal.status, refusal.body, refusal.err, node.alive(), tail(node.stderr.String(), 300))
		}
		holdsWithin(2*time.Second, isFull)
	}
	t.Logf("%d patches on a full disk, the next: %d %s", patched, refusal.status, refusal.code())
	if refused := patch(); refused.status != 503 || refused.code() != "low_disk" {
		t.Errorf("on a full disk: %d %s %v", refused.status, refused.body, refused.err)
	}
	node.kill()
	free()
	check := func() {
		for _, id := range kept {
			if got := c.read(t, "brim", id); got.Version < version[id] || got.State != "scheduled" {
				t.Errorf("acknowledged version %d, now %d (%s)", version[id], got.Version, got.State)
			}
		}
	}
	node = serve(t, filepath.Join(dir, "data"))
	c.use(node)
	check()
	free = fillWhole(t, dir)
	poll(t, patience, "patches find no room", func() bool { return patch().status == 503 })
	free()
	poll(t, patience, "patches are taken again", func() bool { return patch().status == 200 })
	check()
	node.stop(t)
	serve(t, filepath.Join(dir, "data")).stop(t)
}

// TestDamagedNodeOnAFullDisk: a node with a damaged log has no room on its disk. It ends, says what
// to do, and loses nothing, however far it gets. With room the next start replaces it.
func TestDamagedNodeOnAFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	const timers = 500
	dir := smallDiskDir(t)
	members := loopbackMembers(t, 3)
	full := members[1]
	full.dir = filepath.Join(dir, "data")
	c := found(t, members)
	keepTimers(t, c, timers)
	before := nodeID(t, full.dir)
	full.spoil(t, 0.4, 0.4)
	c.start(t, members[0])
	c.start(t, members[2])
	for _, start := range []struct {
		blocks int64
		fails  string
		moved  bool
	}{
		{0, "write identity", false},
		{1, "set the damaged directory aside", true},
		{0, "set the damaged directory aside", true},
		{4, "no room for the log", true},
	} {
		free := fillButFor(t, dir, start.blocks)
		c.start(t, full)
		if code := full.process().awaitExit(t, time.Minute); code != 1 {
			t.Errorf("%+v: exit code %d", start, code)
		}
		if says := full.process().lastWords(); !strings.Contains(says, start.fails) || !strings.Contains(says, "no space left on device; make room on this disk") {
			t.Errorf("%+v: it says %s", start, says)
		}
		free()
		if moved := len(full.aside(t)) > 0; moved != start.moved {
			t.Errorf("%+v: content was moved: %v", start, moved)
		}
	}
	c.start(t, full)
	c.awaitHealthy(t)
	full.wasReplaced(t, before)
	for _, m := range members {
		if got := len(m.client.all(t, "kept")); got != timers {
			t.Errorf("%s lists %d timers, want %d", m.name, got, timers)
		}
	}
}
