package node

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carillon/test/memfs"
	"carillon/test/testkit"
	"carillon/timer"
	"carillon/wal"
)

// fileKinds are all files that a data directory can have. One that is not here fails the test: add
// its purpose, and the effect of damage to it.
var fileKinds = []struct {
	kind string
	path *regexp.Regexp
	idle bool // nobody reads it: any content will do
}{
	{"identity", regexp.MustCompile(`^identity\.json$`), false},
	{"lock", regexp.MustCompile(`^(wal/\d+/)?LOCK$`), true},
	{"FIRST", regexp.MustCompile(`^wal/\d+/FIRST$`), false},
	{"END", regexp.MustCompile(`^wal/\d+/END$`), false},
	// Closed; the last is the open one, see below.
	{"segment", regexp.MustCompile(`^wal/\d+/\d{8}/\d{20}$`), false},
	{"open segment", regexp.MustCompile(`^$`), false},
	{"spare segment", regexp.MustCompile(`^wal/\d+/spare/\d{20}$`), true},
	{"cut off tail", regexp.MustCompile(`\.broken$`), true},
	{"snapshot of meta", regexp.MustCompile(`^snapshots/00000000-[0-9a-f]{16}-[0-9a-f]{16}\.snap$`), false},
	{"snapshot", regexp.MustCompile(`^snapshots/[0-9a-f]{8}-[0-9a-f]{16}-[0-9a-f]{16}\.snap$`), false},
	{"history", regexp.MustCompile(`^history/[0-9a-f]{16}\.hist$`), false},
	{"unfinished", regexp.MustCompile(`\.tmp$`), true},
}

func kindOfFile(path string) (kind string, idle bool) {
	for _, k := range fileKinds {
		if k.path.MatchString(path) {
			return k.kind, k.idle
		}
	}
	return "", false
}

// TestFileKinds: a node's directory has only files that are listed above.
func TestFileKinds(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir)
	rec := newReceiver(t, nil)
	n.must(201, "PUT", "/v1/topics/orders", fmt.Sprintf(`{"callback":{"url":%q}}`, rec.URL))
	n.must(201, "POST", "/v1/topics/orders/timers", `{"id":"a","delay":"1ms"}`)
	n.eventually("orders", "a", "done")
	seen := map[string]bool{}
	look := func() {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return nil // gone meanwhile
			}
			name, err := filepath.Rel(dir, path)
			if name == clockFile {
				// There or not, as it was quick; it has a checksum, and nothing is lost with it.
				return nil
			}
			if kind, _ := kindOfFile(filepath.ToSlash(name)); kind == "" {
				t.Errorf("%s is of no kind that is listed", name)
			} else {
				seen[kind] = true
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	look()
	testkit.Must(t, n.stop())
	look()
	for _, kind := range []string{"identity", "lock", "FIRST", "END", "segment", "history"} {
		if !seen[kind] {
			t.Errorf("no %s", kind)
		}
	}
}

// dirAtRest is a directory at rest, and all that a node serves from it.
type dirAtRest struct {
	fs     *memfs.FS
	clean  bool
	kinds  map[string][]string
	state  string
	past   map[string]bool
	hashes map[truthKey]uint64
	now    time.Duration
	again  func()
}

func newDirAtRest(t *testing.T, clean bool) *dirAtRest {
	t.Helper()
	y := &dirAtRest{clean: clean, kinds: map[string][]string{}, again: seedChance(t)}
	y.again()
	var made *memNode
	y.fs, made = makeMemNode(t, clean)
	y.hashes, y.now = made.hashes, made.clock.now
	last := ""
	for _, path := range paths(t, y.fs, memNodeDir) {
		name := strings.TrimPrefix(path, memNodeDir+"/")
		kind, _ := kindOfFile(name)
		if kind == "" {
			t.Fatalf("%s is of no kind that is listed", name)
		}
		if kind == "segment" {
			last = path
		}
		y.kinds[kind] = append(y.kinds[kind], path)
	}
	if !clean { // the last was being written
		y.kinds["segment"] = slices.DeleteFunc(y.kinds["segment"], func(p string) bool { return p == last })
		y.kinds["open segment"] = []string{last}
	}
	e, err := y.open(copyMemNode(y.fs))
	testkit.Must(t, err)
	y.state, y.past, err = e.serve()
	if err != nil || len(y.past) < 10 {
		t.Fatalf("%d events of history, %v", len(y.past), err)
	}
	maps.Copy(y.hashes, e.hashes)
	e.end()
	return y
}

func (d *dirAtRest) open(fsys *memfs.FS) (*memNode, error) {
	d.again()
	return openMemNode(fsys, &memNodeClock{now: d.now + time.Minute})
}

// The outcomes of damage.
const (
	turnedAway = "refused, with the file"
	madeGood   = "said, and made good: the same is served"
	cutOff     = "taken for a torn tail, kept in .broken, cut off: a state from before"
	earlier    = "cut between two frames, as if the rest was never written: a state from before"
	idleBytes  = "nobody reads it"
	notRead    = "not read now; found by verify"
	forgotten  = "said; the history has less"
	onlyMore   = "a copy beside, passed over: the same is served"
)

// TestDamageAtRestOfEveryFile damages a directory in every file, at random: each time the node
// refuses to open it, naming the file, or serves the very same, or has cut off a tail that looks
// torn by the rule for it. History may be lost, but its answers are true.
func TestDamageAtRestOfEveryFile(t *testing.T) {
	rounds := 400
	if os.Getenv("CARILLON_SOAK") != "" {
		rounds = 10_000
	}
	if v, err := strconv.Atoi(os.Getenv("CARILLON_DAMAGES")); err == nil {
		rounds = v
	}
	if testing.Short() {
		rounds = 100
	}
	synctest.Test(t, func(t *testing.T) {
		yards := []*dirAtRest{newDirAtRest(t, false), newDirAtRest(t, true)}
		outcomes := map[string]int{}
		random := rand.New(rand.NewPCG(11, 11))
		sum := 0
		for sum < rounds {
			y := yards[random.IntN(2)]
			kind := slices.Sorted(maps.Keys(y.kinds))[random.IntN(len(y.kinds))]
			if _, idle := kindOfFile(strings.TrimPrefix(y.kinds[kind][0], memNodeDir+"/")); idle && random.IntN(4) > 0 {
				continue
			}
			path := y.kinds[kind][random.IntN(len(y.kinds[kind]))]
			fsys := copyMemNode(y.fs)
			what := y.damage(t, random, fsys, kind, path)
			if what == "" {
				continue
			}
			outcome := y.judge(t, fsys, kind, path, what)
			if t.Failed() {
				t.Fatalf("damage %d", sum)
			}
			sum++
			outcomes[fmt.Sprintf("%-16s %s", kind, outcome)]++
		}
		for _, k := range slices.Sorted(maps.Keys(outcomes)) {
			t.Logf("%6d %s", outcomes[k], k)
		}
		t.Logf("%d damages", sum)
		for _, k := range fileKinds {
			if len(yards[0].kinds[k.kind])+len(yards[1].kinds[k.kind]) == 0 && k.kind != "cut off tail" {
				t.Errorf("the directories have no %s", k.kind)
			}
		}
	})
}

// damage does something to a file; "" if that changed nothing.
func (d *dirAtRest) damage(t *testing.T, random *rand.Rand, fsys *memfs.FS, kind, path string) string {
	t.Helper()
	how := []string{"flip", "flip", "flip", "cut", "zeros", "swap", "over", "beside"}[random.IntN(8)]
	before := contentOf(t, fsys, path)
	if how == "beside" {
		to := besides(kind, path)
		if _, err := fsys.Stat(to); err == nil {
			return ""
		}
		putFile(t, fsys, to, before)
		return "copied as " + to
	}
	others := d.kinds[kind]
	other := contentOf(t, fsys, others[random.IntN(len(others))])
	var at int
	err := fsys.Damage(path, func(b []byte) []byte {
		if len(b) == 0 {
			return []byte("something")
		}
		at = random.IntN(len(b))
		switch how {
		case "flip":
			b[at] ^= 1 << random.IntN(8)
		case "cut":
			return b[:at]
		case "zeros":
			clear(b[at:min(len(b), at+1+random.IntN(600))])
		case "swap":
			size := min(512, len(b)/2)
			from, to := random.IntN(len(b)/max(size, 1))*size, random.IntN(len(b)/max(size, 1))*size
			kept := bytes.Clone(b[from : from+size])
			copy(b[from:from+size], b[to:to+size])
			copy(b[to:to+size], kept)
		case "over":
			return bytes.Clone(other)
		}
		return b
	})
	testkit.Must(t, err)
	if bytes.Equal(before, contentOf(t, fsys, path)) {
		return ""
	}
	return fmt.Sprintf("%s at %d of %d", how, at, len(before))
}

// besides is the name that a copy of a file could be mistaken under.
func besides(kind, path string) string {
	dir, base := filepath.Split(path)
	switch kind {
	case "segment", "open segment":
		n, _ := strconv.ParseUint(base, 10, 64)
		return dir + fmt.Sprintf("%020d", n+1)
	case "snapshot", "snapshot of meta":
		var id, index, term uint64
		_, _ = fmt.Sscanf(base, "%08x-%016x-%016x.snap", &id, &index, &term)
		return dir + wal.SnapshotMeta{Shard: uint32(id), Index: index + 1, Term: term}.FileName()
	case "history":
		n, _ := strconv.ParseUint(strings.TrimSuffix(base, ".hist"), 16, 64)
		return dir + fmt.Sprintf("%016x.hist", n+100)
	case "FIRST":
		return dir + "END"
	case "END":
		return dir + "FIRST"
	}
	return path + ".tmp"
}

// judge opens a damaged directory and gives the outcome.
func (d *dirAtRest) judge(t *testing.T, fsys *memfs.FS, kind, path, what string) string {
	t.Helper()
	what = path + ": " + what
	_, unsound := wal.Verify(fsys, memNodeDir)
	e, err := d.open(fsys)
	defer e.end()
	if err != nil {
		if inLog := slices.Contains([]string{"segment", "open segment", "FIRST", "END"}, kind); inLog && !strings.Contains(what, "copied as") && !strings.Contains(err.Error(), "offset") {
			t.Errorf("%s: refused without an offset: %v", what, err)
		}
		if d.names(path, err.Error()) || d.names(path, e.log.String()) && strings.Contains(err.Error(), "shard") {
			return turnedAway
		}
		t.Errorf("%s: refused without a word of the file: %v\n%s", what, err, e.log.String())
		return ""
	}
	cut := e.hasBroken(t)
	truthful := e.legal(d.hashes)
	state, past, err := e.serve()
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return ""
	}
	// Then it goes on from an earlier end, and its next steps are new.
	shorter := state != d.state && kind == "open segment" && truthful
	for event := range past {
		if !d.past[event] && !shorter {
			t.Errorf("%s: the history tells what never was: %s", what, event)
		}
	}
	_, idle := kindOfFile(strings.TrimPrefix(path, memNodeDir+"/"))
	said := strings.Contains(e.log.String(), filepath.Base(path)) || e.past.store.Stats().Damaged > 0
	switch {
	case shorter && cut:
		return cutOff
	case shorter:
		return earlier
	case state != d.state:
		t.Errorf("%s: something else is served\n%s", what, e.log.String())
		return ""
	case kind == "history" && len(past) < len(d.past) && said:
		return forgotten
	case kind == "history" && len(past) < len(d.past):
		t.Errorf("%s: %d of %d events are left, and nothing is said", what, len(past), len(d.past))
		return ""
	case said || cut:
		return madeGood
	case idle || meaningless(kind, what):
		return idleBytes
	case strings.Contains(what, "copied as"):
		return onlyMore
	case unsound != nil && d.names(path, unsound.Error()):
		return notRead
	}
	t.Errorf("%s: the same is served, but the damage is found by nobody\n%s", what, e.log.String())
	return ""
}

// names says whether a text names a file, its copy, or the directory that lacks one.
func (d *dirAtRest) names(path, text string) bool {
	return strings.Contains(text, filepath.Base(path)) || strings.Contains(text, filepath.Dir(path))
}

// hasBroken says that a tail was cut off and kept.
func (m *memNode) hasBroken(t *testing.T) bool {
	return slices.ContainsFunc(paths(t, m.fs, memNodeDir), func(p string) bool { return strings.HasSuffix(p, ".broken") })
}

// legal says that every shard is in a state in which it once was.
func (m *memNode) legal(hashes map[truthKey]uint64) bool {
	for id := timer.ShardID(1); id <= memNodeShards; id++ {
		p := m.host.Progress(id)
		if table, _ := m.host.Inspect(id); p.Replica == 0 || hashes[truthKey{id, p.Applied}] != table.Hash() {
			return false
		}
	}
	return true
}

// meaningless says that nothing but prepared space, which is zeros to the end of the open segment,
// was cut off.
func meaningless(kind, what string) bool {
	return kind == "open segment" && strings.Contains(what, "cut at")
}
