package e2e

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Jepsen's experiments on NATS 2.12.1 (https://jepsen.io/analyses/nats-2.12.1), on files: bits that
// are flipped, and files that are cut, on a minority of the nodes. cluster_power_linux_test.go has
// those on power.

// matrixTimers is how many timers are acknowledged before the first fault; more are meanwhile.
func matrixTimers(t testing.TB) int {
	t.Helper()
	needTime(t)
	return setting(t, "CARILLON_E2E_CLUSTER_STOCK", 20_000)
}

// matrixShards is the number of shards of a cluster that is damaged.
const matrixShards = 4

// harm damages a file. length is that of the file without the zeros at its end.
type harm func(t testing.TB, random *rand.Rand, path string, from, length int)

// flipOneBit flips one bit.
func flipOneBit(t testing.TB, random *rand.Rand, path string, from, length int) {
	t.Helper()
	flip(t, path, from+random.IntN(length-from), byte(1)<<random.IntN(8))
}

// cutOff cuts a file.
func cutOff(t testing.TB, random *rand.Rand, path string, from, length int) {
	t.Helper()
	if err := os.Truncate(path, int64(from+random.IntN(length-from))); err != nil {
		t.Fatal(err)
	}
}

// harmed is a kind of file to damage: which files of a data directory, and from which part of their
// length on.
type harmed struct {
	what  string
	files func(t testing.TB, random *rand.Rand, dir string) []string
	from  float64
	again bool // of the first round's nodes: others have filled them, so they have snapshots
}

var allHarmed = []harmed{
	{"three segments of the log", func(t testing.TB, random *rand.Rand, dir string) (list []string) {
		closed := segments(t, dir)
		closed = closed[:len(closed)-1]
		for range min(3, len(closed)) {
			i := random.IntN(len(closed))
			list = append(list, filepath.Join(dir, closed[i]))
			closed = slices.Delete(closed, i, i+1)
		}
		return list
	}, 0, false},
	{"the end of the log", func(t testing.TB, _ *rand.Rand, dir string) []string {
		list := segments(t, dir)
		last := filepath.Join(dir, list[len(list)-1])
		if writtenBytes(t, last) == 0 { // just begun
			last = filepath.Join(dir, list[len(list)-2])
		}
		return []string{last}
	}, 0.9, false},
	{"all snapshots", func(t testing.TB, _ *rand.Rand, dir string) (list []string) {
		for _, files := range snapshotsByShard(t, dir) {
			list = append(list, files...)
		}
		return list
	}, 0, true},
	{"settings", func(_ testing.TB, _ *rand.Rand, dir string) []string {
		return []string{filepath.Join(dir, "identity.json"), filepath.Join(dir, "wal", "0", "FIRST")}
	}, 0, false},
	{"every file but the identity", func(t testing.TB, _ *rand.Rand, dir string) (list []string) {
		if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case e.IsDir() && (strings.HasPrefix(e.Name(), "damaged-") || e.Name() == "spare"):
				return fs.SkipDir
			case !e.IsDir() && e.Name() != "identity.json":
				list = append(list, path)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return list
	}, 0, false},
}

// damage does the harm to each file of a kind, and returns how many there are.
func (h harmed) damage(t testing.TB, random *rand.Rand, dir string, do harm) (n int) {
	t.Helper()
	for _, path := range h.files(t, random, dir) {
		if length := writtenBytes(t, path); length > 0 {
			do(t, random, path, int(h.from*float64(length)), length)
			n++
		}
	}
	if n == 0 {
		t.Errorf("%s has nothing of %s", dir, h.what)
	}
	return n
}

// TestClusterDamageMatrix: a minority of the nodes has its files damaged, in each kind of file, and
// starts again. Nothing that was acknowledged is lost, altered or called early, nor is anything
// there that nobody added.
func TestClusterDamageMatrix(t *testing.T) {
	timers := matrixTimers(t)
	for _, tc := range []struct {
		what    string
		nodes   int
		victims int // at once
		do      harm
		running bool // the files are damaged while the node runs
	}{
		{"bits of one of three", 3, 1, flipOneBit, false},
		{"bits of one of three that runs", 3, 1, flipOneBit, true},
		{"cut files of one of three", 3, 1, cutOff, false},
		{"bits of one of five that runs", 5, 1, flipOneBit, true},
		{"cut files of one of five", 5, 1, cutOff, false},
		{"bits of two of five", 5, 2, flipOneBit, false},
	} {
		t.Run(tc.what, func(t *testing.T) {
			random := seeded(t)
			c := foundOf(t, matrixShards, tc.nodes, loopbackMembers(t, tc.nodes))
			s := newStock(t, c, timers)
			s.keepWriting(t)
			for round, kind := range allHarmed {
				var victims []*member
				first := round * tc.victims
				if kind.again {
					first = 0
				}
				for i := range tc.victims {
					victims = append(victims, c.all()[(first+i)%tc.nodes])
				}
				for _, m := range victims {
					if tc.running {
						m.process().signal(t, syscall.SIGSTOP) // so that no file goes meanwhile
					} else {
						m.process().kill()
					}
					n := kind.damage(t, random, m.dir, tc.do)
					t.Logf("%s: %s: %d files", m.name, kind.what, n)
					if tc.running {
						m.process().signal(t, syscall.SIGCONT)
					}
				}
				s.advance(t, 200)
				for _, m := range victims {
					m.process().kill()
				}
				s.restart(t, victims...)
			}
			s.check(t)
		})
	}
}

// restart starts members again and waits until the cluster is whole with them. A node that refuses
// its damaged directory is given an empty one, as its message asks.
func (s *stock) restart(t *testing.T, members ...*member) {
	t.Helper()
	begin, c, emptied := time.Now(), s.cluster, map[*member]bool{}
	for _, m := range members {
		c.start(t, m)
	}
	why := ""
	if !holdsWithinBy(lookEvery, stockLimit, func() bool {
		for _, m := range members {
			if m.alive() || emptied[m] {
				continue
			}
			says := m.process().lastWords()
			if m.process().code != exitDown || !strings.HasPrefix(says, "carillon: ") {
				t.Errorf("%s ended with %d: %s", m.name, m.process().code, says)
			}
			t.Logf("%s refuses: %s", m.name, says)
			if err := os.RemoveAll(m.dir); err != nil {
				t.Error(err)
			}
			emptied[m] = true
			c.start(t, m)
		}
		why = c.lacks()
		return why == ""
	}) {
		t.Fatalf("the cluster is not whole within %v: %s", stockLimit, why)
	}
	for _, m := range members {
		t.Logf("%s is back after %v: set aside %d times, emptied %v", m.name, time.Since(begin).Round(time.Second/10), len(m.aside(t)), emptied[m])
	}
	s.advance(t, 200)
}

// lacks is what a cluster lacks until each member runs, is healthy and has a replica of each shard.
func (c *cluster) lacks() string {
	for _, m := range c.all() {
		if !m.alive() {
			return m.name + " does not run"
		}
	}
	if why := c.ails(); why != "" {
		return why
	}
	v, err := c.all()[0].view()
	if err != nil {
		return err.Error()
	}
	for _, s := range v.Shards {
		for _, m := range c.all() {
			if !slices.Contains(s.Replicas, m.name) {
				return fmt.Sprintf("shard %d is on %v", s.Shard, s.Replicas)
			}
		}
	}
	return ""
}

// lastWords is the last line on a process's stderr.
func (p *process) lastWords() string {
	says := strings.TrimSpace(p.stderr.String())
	return says[strings.LastIndexByte(says, '\n')+1:]
}
