package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// olderRelease is the build that nodes are upgraded from, and go back to, and its feature level.
// When a release is made, this becomes the one before it: docs/testing.md.
const (
	olderRelease = "b057808fc5aef2a6aab0e7d58c0119bb013c426e" // the last whose cluster raises its level by itself
	olderLevel   = 3
	newestLevel  = 4 // of the build under test
)

// olderBinary builds that release from the repository's history.
var olderBinary = sync.OnceValues(func() (string, error) {
	parent := filepath.Dir(binary)
	if os.Getenv("CARILLON_E2E_BINARY") != "" { // its directory is somebody else's
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "older-")
	if err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"git", "-C", "..", "archive", "--output", filepath.Join(dir, "older.tar"), olderRelease},
		{"tar", "-C", dir, "-xf", filepath.Join(dir, "older.tar")},
		{"go", "build", "-C", dir, "-o", dir + "/carillon-older", "./cmd/carillon"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return dir + "/carillon-older", nil
})

// upgrade is a cluster whose nodes are restarted with one build or another, under load.
type upgrade struct {
	t       *testing.T
	c       *cluster
	load    *clusterLoad
	members []*member
	levels  []int
	older   string // "": the build under test, held at the level of the one before
}

// run has a node's next process be of the older release, or of the one under test, which holds
// itself to a level.
func (u *upgrade) run(at, level int) {
	m := u.members[at]
	if m.binary = ""; level == olderLevel && u.older != "" {
		m.binary, m.env = u.older, nil
	} else {
		m.understands(level)
	}
	u.levels[at] = level
}

func (u *upgrade) restart(at, level int) {
	u.t.Helper()
	m := u.members[at]
	wait(500 * time.Millisecond)
	m.process().stop(u.t)
	u.run(at, level)
	u.begin(m)
	u.c.awaitLevel(u.t, olderLevel, u.levels...)
}

func (u *upgrade) begin(m *member) {
	u.t.Helper()
	u.c.start(u.t, m)
	u.c.awaitHealthy(u.t)
	u.load.rounds++
}

// thereAndBack upgrades all nodes, and takes all of them back, one after the other. One holds
// itself to the level of before throughout: the older release would raise it by itself, as soon as
// it read in its log that all nodes understand more.
func (u *upgrade) thereAndBack(random *rand.Rand) {
	u.t.Helper()
	for at := range u.members {
		m := u.members[at]
		wait(500 * time.Millisecond)
		m.process().stop(u.t)
		m.binary = ""
		m.understands(olderLevel)
		u.begin(m)
	}
	for _, at := range random.Perm(len(u.members)) {
		u.restart(at, olderLevel)
	}
}

// TestClusterUpgradeInAnyOrder: under load, nodes of the release before (a build of that commit;
// where it cannot be had, this build, held at its feature level) are started again with this one,
// in an order that is drawn, and one goes back in between. No client notices. The cluster uses the
// higher level when an operator finalizes the upgrade, which is refused before the last node has
// it; from then on a node of the release before ends, says what to do, and the others go on. With
// CARILLON_E2E_LONG all nodes have gone there and back before.
func TestClusterUpgradeInAnyOrder(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	u := &upgrade{t: t, members: loopbackMembers(t, 3), levels: []int{olderLevel, olderLevel, olderLevel}}
	var err error
	if u.older, err = olderBinary(); err != nil {
		t.Logf("the release before is played by this build: %v", err)
	}
	for at := range u.members {
		u.run(at, olderLevel)
	}
	c := found(t, u.members)
	u.c, u.load = c, loadOn(t, c, newReceiver(t, slowNowAndThen()), random)
	c.awaitLevel(t, olderLevel, u.levels...)
	if os.Getenv("CARILLON_E2E_LONG") != "" {
		u.thereAndBack(random)
	}
	order := random.Perm(3)
	for _, at := range order[:2] {
		u.restart(at, newestLevel)
	}
	back := order[random.IntN(2)]
	u.restart(back, olderLevel)
	c.finalizeRefused(t, u.members[back], u.members[slices.Index(u.levels, newestLevel)])
	for _, at := range random.Perm(3) {
		if u.levels[at] == olderLevel {
			u.restart(at, newestLevel)
		}
	}
	c.finalize(t, newestLevel)
	c.awaitLevel(t, newestLevel, u.levels...)

	at := random.IntN(3)
	late := u.members[at]
	late.process().stop(t)
	u.run(at, olderLevel)
	c.start(t, late)
	if code := late.process().awaitExit(t, formLimit); code != 1 || !strings.Contains(late.process().stderr.String(), "start the newer release") {
		t.Errorf("a node that is too old exits with %d: %s", code, late.process().stderr)
	}
	u.run(at, newestLevel)
	u.begin(late)

	v := &verdict{} // no crash: every duplicate is a fault
	u.load.finish(t, v)
	c.checkAgreed(t, u.members)
	t.Logf("order %v, %s went back: %d timers, %d arrivals, %d duplicates", order, u.members[back].name, u.load.ledger.size(), len(v.log), v.duplicates)
}

// finalize ends an upgrade as an operator does, who sees first that it waits.
func (c *cluster) finalize(t testing.TB, level int) {
	t.Helper()
	url := "http://" + c.running()[len(c.running())-1].http
	if out, _ := tool(t, 0, "ctl", "--url", url, "upgrade", "status"); !strings.Contains(out, "waits to be finalized: carillon ctl upgrade finalize") {
		t.Errorf("upgrade status: %s", out)
	}
	if out, _ := tool(t, 0, "ctl", "--url", url, "upgrade", "finalize"); out != fmt.Sprintf("feature level %d\n", level) {
		t.Errorf("upgrade finalize: %s", out)
	}
}

// finalizeRefused: a node of the release before is named; and if it is itself asked, it does not
// know the request, or says so.
func (c *cluster) finalizeRefused(t testing.TB, old, upgraded *member) {
	t.Helper()
	if _, said := tool(t, 1, "ctl", "--url", "http://"+old.http, "upgrade", "finalize"); !strings.Contains(said, "is not understood by ") && !strings.Contains(said, "ask one that is upgraded") {
		t.Errorf("upgrade finalize at %s of the release before: %s", old.name, said)
	}
	_, said := tool(t, 1, "ctl", "--url", "http://"+upgraded.http, "upgrade", "finalize")
	if !strings.Contains(said, "is not understood by ") || !strings.Contains(said, old.name+" (release ") {
		t.Errorf("upgrade finalize with %s of the release before: %s", old.name, said)
	}
}

// understands sets the level of the next start.
func (m *member) understands(level int) {
	m.env = []string{fmt.Sprint("CARILLON_FEATURE_LEVEL=", level)}
}

// awaitLevel waits until all nodes say what the cluster has agreed on, and what each node
// understands. That must never have been more.
func (c *cluster) awaitLevel(t testing.TB, agreed int, levels ...int) {
	t.Helper()
	poll(t, formLimit, fmt.Sprintf("all say level %d, of %v", agreed, levels), func() bool {
		for _, m := range c.running() {
			var v struct {
				Level int `json:"feature_level"`
				Nodes []struct {
					Name  string
					Level int `json:"feature_level"`
				}
			}
			a := m.client.do("GET", "/v1/cluster", "")
			if a.status != 200 || json.Unmarshal(a.body, &v) != nil {
				return false
			}
			if v.Level > agreed {
				t.Fatalf("%s: the cluster has agreed on level %d, of %v", m.name, v.Level, levels)
			}
			list := make([]int, len(v.Nodes))
			for _, n := range v.Nodes {
				list[slices.IndexFunc(c.all(), func(m *member) bool { return m.name == n.Name })] = n.Level
			}
			if v.Level != agreed || !slices.Equal(list, levels) {
				return false
			}
		}
		return true
	})
}
