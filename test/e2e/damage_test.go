package e2e

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"carillon/test/sim/forged"
)

// attic is a data directory at rest whose log has several closed segments. Each case works on a
// copy.
type attic struct {
	dir    string
	timers int
}

// newAttic fills a node and ends it, by SIGTERM or by SIGKILL.
func newAttic(t testing.TB, clean bool) *attic {
	t.Helper()
	a := &attic{dir: t.TempDir(), timers: 6000}
	node := serve(t, a.dir)
	c := newClient(node)
	c.topic(t, "attic", "http://127.0.0.1:9/", "")
	// Batches of 100 make long frames. Go on until the open segment has many, too.
	for i, open := 0, 0; i < a.timers || open < 300<<10; {
		ops := make([]string, 100)
		for j := range ops {
			ops[j] = fmt.Sprintf(`{"op":"add","id":"a%d","delay":"1000h","payload":%q}`, i, strings.Repeat("p", 400))
			i++
		}
		for _, status := range c.batch(t, "attic", ops) {
			if status != 201 {
				t.Fatalf("add: status %d", status)
			}
		}
		a.timers = max(a.timers, i)
		list := segments(t, a.dir)
		open = writtenBytes(t, filepath.Join(a.dir, list[len(list)-1]))
	}
	if clean {
		node.stop(t)
	} else {
		node.kill()
	}
	return a
}

func (a *attic) copy(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS(a.dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// segments returns the log's segment files in order, relative to the data directory.
func segments(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(filepath.Join(dir, "wal"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || len(e.Name()) != 20 || strings.Contains(path, "spare") {
			return err
		}
		name, err := filepath.Rel(dir, path)
		out = append(out, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// writtenBytes is the length of a segment without its preallocated zeros.
func writtenBytes(t testing.TB, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.TrimRight(string(b), "\x00"))
}

// cutLastFrame cuts a log inside its last frame.
func cutLastFrame(t testing.TB, dir string) (path string) {
	t.Helper()
	end := 0
	for _, name := range slices.Backward(segments(t, dir)) {
		path = filepath.Join(dir, name)
		if end = writtenBytes(t, path); end > 0 { // else it was just begun
			break
		}
	}
	if err := os.Truncate(path, int64(end-1)); err != nil {
		t.Fatal(err)
	}
	return path
}

func flip(t testing.TB, path string, at int, bit byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], int64(at)); err != nil {
		t.Fatal(err)
	}
	b[0] ^= bit
	if _, err := f.WriteAt(b[:], int64(at)); err != nil {
		t.Fatal(err)
	}
}

// refuses checks that the node does not start, names the damaged files in a one-line message and
// changes nothing, and that wal verify reports the same offset.
func refuses(t testing.TB, dir string, names ...string) {
	t.Helper()
	before := listing(t, dir)
	verifyCode, _, verifySays := command(t, "wal", "verify", dir)
	code, stdout, says := command(t, serveArgs(dir, "127.0.0.1:0")...)
	if code != exitDown || stdout != "" || strings.Count(says, "\n") != 1 {
		t.Errorf("serve: code %d, stdout %q, stderr %q", code, stdout, says)
	}
	if verifyCode != 1 {
		t.Errorf("wal verify: code %d, stderr %q", verifyCode, verifySays)
	}
	for _, name := range names {
		if !strings.Contains(says, name) || !strings.Contains(verifySays, name) {
			t.Errorf("%q is not named:\nserve  %sverify %s", name, says, verifySays)
		}
	}
	if where := offsetIn(says); where != offsetIn(verifySays) {
		t.Errorf("they do not say the same:\nserve  %sverify %s", says, verifySays)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("a refused start changed the directory:\n%s\n%s", before, after)
	}
}

// offsetIn returns N of the "at offset N" in a message, "" if there is none.
func offsetIn(says string) string {
	_, rest, found := strings.Cut(says, "at offset ")
	if !found {
		return ""
	}
	where, _, _ := strings.Cut(rest, " ")
	return strings.TrimRight(where, ":;,\n")
}

// listing describes the files of a directory, except identity.json, which counts starts, and LOCK.
func listing(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "identity.json" || e.Name() == "LOCK" {
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&b, "%s %d %x\n", path, len(data), sumOf(string(data)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// holdsAll starts the node and checks that it has all timers.
func (a *attic) holdsAll(t testing.TB, dir string) {
	t.Helper()
	node := serve(t, dir)
	c := newClient(node)
	if got := len(c.all(t, "attic")); got != a.timers {
		t.Errorf("%d timers, want %d", got, a.timers)
	}
	node.stop(t)
}

// TestDamageAtRest flips bits in, cuts and removes parts of the log that a crash left.
func TestDamageAtRest(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	random := seeded(t)
	a := newAttic(t, false)
	list := segments(t, a.dir)
	if len(list) < 3 {
		t.Fatalf("only %d segments: %v", len(list), list)
	}
	a.holdsAll(t, a.copy(t))

	t.Run("flips", func(t *testing.T) {
		dir := a.copy(t)
		for range setting(t, "CARILLON_E2E_FLIPS", 12) {
			name := list[random.IntN(len(list)-1)] // a closed segment
			path := filepath.Join(dir, name)
			at, bit := random.IntN(writtenBytes(t, path)), byte(1)<<random.IntN(8)
			flip(t, path, at, bit)
			refuses(t, dir, path, "offset")
			flip(t, path, at, bit)
			if t.Failed() {
				t.Fatalf("%s: bit %#x at offset %d", name, bit, at)
			}
		}
		a.holdsAll(t, dir)
	})
	t.Run("flip in front of synced frames of the open segment", func(t *testing.T) {
		dir := a.copy(t)
		path := filepath.Join(dir, list[len(list)-1])
		flip(t, path, writtenBytes(t, path)/4, 1)
		refuses(t, dir, path, "offset")
	})
	t.Run("cut", func(t *testing.T) {
		dir := a.copy(t)
		path := filepath.Join(dir, list[0])
		if err := os.Truncate(path, int64(writtenBytes(t, path)/2)); err != nil {
			t.Fatal(err)
		}
		refuses(t, dir, path, "offset")
	})
	t.Run("cut inside the last frame", func(t *testing.T) {
		dir := a.copy(t)
		path := cutLastFrame(t, dir)
		refuses(t, dir, path, "offset", "ends inside a frame")
	})
	t.Run("removed in the middle", func(t *testing.T) {
		dir := a.copy(t)
		if err := os.Remove(filepath.Join(dir, list[1])); err != nil {
			t.Fatal(err)
		}
		refuses(t, dir, filepath.Join(dir, filepath.Dir(list[1])))
	})
	t.Run("first removed", func(t *testing.T) {
		dir := a.copy(t)
		if err := os.Remove(filepath.Join(dir, list[0])); err != nil {
			t.Fatal(err)
		}
		refuses(t, dir, filepath.Join(dir, filepath.Dir(list[0])))
	})
	t.Run("log removed", func(t *testing.T) {
		dir := a.copy(t)
		if err := os.RemoveAll(filepath.Join(dir, "wal")); err != nil {
			t.Fatal(err)
		}
		code, _, says := command(t, serveArgs(dir, "127.0.0.1:0")...)
		if code != exitDown || strings.Count(says, "\n") != 1 {
			t.Errorf("code %d, stderr %q", code, says)
		}
	})
	t.Run("torn tail", func(t *testing.T) { a.tornTail(t, list[len(list)-1]) })
}

// tornTail: a partial frame at the end, which was never acknowledged, is cut off and kept in a
// .broken file. Nothing else is missing.
func (a *attic) tornTail(t *testing.T, last string) {
	t.Helper()
	dir := a.copy(t)
	path := filepath.Join(dir, last)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	end := writtenBytes(t, path)
	if _, err := f.WriteAt([]byte("\x90\x01half a frame that nobody was told about"), int64(end+2)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if code, out, says := command(t, "wal", "verify", dir); code != 0 || !strings.Contains(out, "torn tail") {
		t.Errorf("wal verify: code %d, %s%s", code, out, says)
	}
	a.holdsAll(t, dir)
	broken, err := filepath.Glob(path + ".*.broken")
	if err != nil || len(broken) != 1 {
		t.Fatalf("kept %v, %v", broken, err)
	}
	if b, err := os.ReadFile(broken[0]); err != nil || !strings.Contains(string(b), "nobody was told") {
		t.Errorf("kept %q, %v", b, err)
	}
}

// TestDamageAfterACleanStop: after a clean stop the log's end is known, so a missing end is damage.
func TestDamageAfterACleanStop(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	a := newAttic(t, true)
	list := segments(t, a.dir)
	last := list[len(list)-1]
	t.Run("end cut off", func(t *testing.T) {
		dir := a.copy(t)
		path := filepath.Join(dir, last)
		if err := os.Truncate(path, int64(writtenBytes(t, path)-100)); err != nil {
			t.Fatal(err)
		}
		refuses(t, dir, path, "offset")
	})
	t.Run("last segment removed", func(t *testing.T) {
		dir := a.copy(t)
		if err := os.Remove(filepath.Join(dir, last)); err != nil {
			t.Fatal(err)
		}
		refuses(t, dir, filepath.Join(dir, "wal"))
	})
	for _, mark := range []string{"wal/0/FIRST", "wal/0/END"} {
		t.Run("flip in "+filepath.Base(mark), func(t *testing.T) {
			dir := a.copy(t)
			path := filepath.Join(dir, mark)
			flip(t, path, 20, 4)
			refuses(t, dir, path, "offset")
		})
	}
	for what, change := range map[string]func(path string){
		"removed": func(path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
		"damaged": func(path string) { flip(t, path, 20, 4) },
	} {
		t.Run("identity "+what, func(t *testing.T) {
			dir := a.copy(t)
			change(filepath.Join(dir, "identity.json"))
			code, _, says := command(t, serveArgs(dir, "127.0.0.1:0")...)
			if code != exitDown || !strings.Contains(says, "identity.json") || !strings.Contains(says, "restore a backup") || strings.Count(says, "\n") != 1 {
				t.Errorf("code %d, stderr %q", code, says)
			}
		})
	}
}

// TestPayloadThatIsAFrame: the last write of a node is torn, and what is left of it holds a payload that
// is a frame of the log, which says that all before it was durable. The node starts.
func TestPayloadThatIsAFrame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	node := serve(t, dir)
	c := newClient(node)
	c.topic(t, "attic", "http://127.0.0.1:9/", "")
	frame := forged.LogFrame(1<<62, 1<<61)
	for i, payload := range [][]byte{[]byte("a"), bytes.Repeat(frame, 20)} {
		op := fmt.Sprintf(`{"op":"add","id":"a%d","delay":"1000h","payload_base64":%q}`, i, base64.StdEncoding.EncodeToString(payload))
		if got := c.batch(t, "attic", []string{op}); got[0] != 201 {
			t.Fatal(got)
		}
	}
	node.kill()
	torn := false
	for _, name := range segments(t, dir) {
		path := filepath.Join(dir, name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.LastIndex(b, frame); at >= 0 {
			torn = true
			clear(b[at+len(frame):])
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !torn {
		t.Fatal("the payload is in no segment")
	}
	node = serve(t, dir)
	if n := len(newClient(node).all(t, "attic")); n != 1 {
		t.Errorf("%d timers, want the one before the torn write", n)
	}
	node.stop(t)
}

// TestDirectoryMovedUnderARunningNode: a node whose data directory is moved away, and replaced by a
// copy, ends with the code after which supervisors do not restart it, and names the remedy. In the
// directory that was moved is all that it acknowledged.
func TestDirectoryMovedUnderARunningNode(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	node := serve(t, dir)
	c := newClient(node)
	c.topic(t, "orders", "http://127.0.0.1:9/", "")
	if err := errors.Join(os.Rename(dir, dir+"-moved"), os.CopyFS(dir, os.DirFS(dir+"-moved"))); err != nil {
		t.Fatal(err)
	}
	acked := 0
	for end := time.Now().Add(readyLimit); node.alive() && time.Now().Before(end); {
		if a := c.do("POST", "/v1/topics/orders/timers", fmt.Sprintf(`{"id":"a%d","delay":"1000h"}`, acked)); a.status == 201 {
			acked++
		}
	}
	if code := node.awaitExit(t, readyLimit); code != exitDown || !strings.Contains(node.stderr.String(), "was deleted, moved, replaced or mounted over while the node ran") {
		t.Errorf("exit code %d: %s", code, node.stderr)
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(dir+"-moved", dir)); err != nil {
		t.Fatal(err)
	}
	c.use(serve(t, dir))
	if n := len(c.all(t, "orders")); n < acked || n == 0 {
		t.Errorf("%d timers, %d were acknowledged", n, acked)
	}
}
