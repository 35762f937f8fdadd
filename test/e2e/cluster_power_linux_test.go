package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Jepsen's experiments on NATS 2.12.1 on power: see cluster_damage_matrix_test.go.

// powerDisk is an ext4 file system in a file, mounted through a loop device. Its power can be cut:
// then what the kernel has not sent to the device is gone, which is all data, names and lengths
// since their last sync or write-back. What the device has taken stays, as if it had no cache that
// a power cut empties.
type powerDisk struct {
	image, dir string
	cuts       int
}

const (
	powerDiskBytes = 8 << 30 // of a sparse file

	fsShutdown  = 0x8004587d // ioctl of ext4 and xfs, _IOR('X', 125, __u32)
	noLogFlush  = 2          // stops all writes at once, those of the journal too
	canaryBytes = 100_000
)

func newPowerDisk(t testing.TB) *powerDisk {
	t.Helper()
	root := t.TempDir()
	d := &powerDisk{image: filepath.Join(root, "image"), dir: filepath.Join(root, "disk")}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, d.image, "")
	if err := os.Truncate(d.image, powerDiskBytes); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", d.image).CombinedOutput(); err != nil {
		t.Skipf("no ext4 file system can be made (%v %s): power is not cut", err, out)
	}
	if err := d.mount(); err != nil {
		t.Skipf("%v: power is not cut", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return d
}

func (d *powerDisk) mount() error {
	if out, err := exec.Command("mount", "-o", "loop", d.image, d.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("mount -o loop: %w %s", err, out)
	}
	return nil
}

// cut is the power cut. Nothing can be read or written afterwards. Just before, a file is written
// that is synced, and one that is not.
func (d *powerDisk) cut(t testing.TB) {
	t.Helper()
	d.cuts++
	for _, synced := range []bool{true, false} {
		f, err := os.Create(d.canary(synced))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Write(bytes.Repeat([]byte("c"), canaryBytes)); err != nil {
			t.Fatal(err)
		}
		if synced {
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	root, err := os.Open(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := unix.IoctlSetPointerInt(int(root.Fd()), fsShutdown, noLogFlush); err != nil {
		t.Skipf("the file system cannot be stopped (%v): power is not cut", err)
	}
}

func (d *powerDisk) canary(synced bool) string {
	return filepath.Join(d.dir, fmt.Sprintf("canary-%d-%v", d.cuts, synced))
}

// restore mounts the disk again. Its processes must have ended. The synced file must be there and
// the other must not, else no power was cut.
func (d *powerDisk) restore(t testing.TB) {
	t.Helper()
	if err := syscall.Unmount(d.dir, 0); err != nil {
		t.Fatalf("unmount: %v", err)
	}
	if err := d.mount(); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(d.canary(true)); err != nil || len(b) != canaryBytes || strings.Trim(string(b), "c") != "" {
		t.Errorf("of a synced file %d bytes are there (%v)", len(b), err)
	}
	if b, _ := os.ReadFile(d.canary(false)); strings.Contains(string(b), "c") {
		t.Errorf("of a file that was not synced %d bytes are there: no power was cut", len(b))
	}
}

// powered is a cluster whose nodes have a disk each whose power can be cut.
type powered struct {
	*cluster
	*stock
	disks map[*member]*powerDisk
}

func newPowered(t *testing.T, nodes, timers int) *powered {
	t.Helper()
	p := &powered{disks: map[*member]*powerDisk{}}
	members := loopbackMembers(t, nodes)
	for _, m := range members {
		p.disks[m] = newPowerDisk(t)
		m.settle(t, filepath.Join(p.disks[m].dir, "data"))
	}
	p.cluster = foundOf(t, matrixShards, nodes, members)
	p.stock = newStock(t, p.cluster, timers)
	return p
}

// cutPower cuts the power of nodes: their disks stop, and then their processes end.
func (p *powered) cutPower(t testing.TB, members ...*member) {
	t.Helper()
	for _, m := range members {
		p.disks[m].cut(t)
	}
	for _, m := range members {
		m.process().kill()
	}
	for _, m := range members {
		p.disks[m].restore(t)
	}
}

// TestClusterPowerCutOfAll: the power of all nodes is cut at once, under load, again and again.
func TestClusterPowerCutOfAll(t *testing.T) {
	timers := matrixTimers(t)
	for _, nodes := range []int{3, 5} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			p := newPowered(t, nodes, timers)
			p.keepWriting(t)
			for range 3 {
				p.advance(t, 1000)
				p.cutPower(t, p.cluster.all()...)
				p.restart(t, p.cluster.all()...)
			}
			p.check(t)
		})
	}
}

// TestClusterPauseAndPowerCut: one node is paused while the two others acknowledge adds. The power of
// the second is cut and the third is paused, so that a majority remains of one that is behind and
// one that has what its disk had. It takes adds. Each node has each part.
func TestClusterPauseAndPowerCut(t *testing.T) {
	p := newPowered(t, 3, matrixTimers(t))
	p.keepWriting(t)
	all := p.cluster.all()
	for _, order := range [][3]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}} {
		behind, cut, third := all[order[0]], all[order[1]], all[order[2]]
		behind.process().signal(t, syscall.SIGSTOP)
		p.advance(t, 1000)
		p.cutPower(t, cut)
		third.process().signal(t, syscall.SIGSTOP)
		behind.process().signal(t, syscall.SIGCONT)
		p.cluster.start(t, cut)
		p.advance(t, 1000)
		third.process().signal(t, syscall.SIGCONT)
		p.restart(t)
	}
	p.check(t)
}

// TestClusterPowerCutFindsMissingSyncs: with nodes whose syncs do nothing the same power cut loses
// what was acknowledged, and that does not stay hidden: nodes refuse what is left of their
// directories, or the checker misses timers. Else the tests above would prove nothing.
func TestClusterPowerCutFindsMissingSyncs(t *testing.T) {
	needTime(t)
	needStrace(t)
	p := newPowered(t, 3, 1000)
	all := p.cluster.all()
	for _, m := range all {
		inject(t, m.process(), "fsync,fdatasync", "retval=0")
	}
	p.keepWriting(t)
	p.advance(t, 1000)
	p.cutPower(t, all...)
	p.stop()
	for _, m := range all {
		p.cluster.start(t, m)
	}
	poll(t, stockLimit, "the cluster is whole, or a node refuses", func() bool {
		return p.lacks() == "" || slices.ContainsFunc(all, func(m *member) bool { return !m.alive() })
	})
	for _, m := range all {
		if !m.alive() {
			says := m.process().lastWords()
			t.Logf("%s ends with %d: %s", m.name, m.process().code, says)
			if m.process().code != exitDown || !strings.Contains(says, "damaged") {
				t.Errorf("%s does not say what is missing", m.name)
			}
			return
		}
	}
	list := p.faults(t)
	t.Logf("%d timers acknowledged, %d faults", p.acked.Load(), len(list))
	if len(list) == 0 {
		t.Error("nothing is missing, though nothing was synced")
	}
}
