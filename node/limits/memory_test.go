package limits

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"carillon/test/testkit"
)

// tree makes files below a directory: path, content, and so on.
func tree(t *testing.T, files ...string) (root string) {
	t.Helper()
	root = t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(root, files[i])
		testkit.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.Must(t, os.WriteFile(path, []byte(files[i+1]), 0o644))
	}
	return root
}

const (
	meminfo = "MemTotal:       8388608 kB\nMemFree: 1 kB\n"
	mountV2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
	mountV1 = "32 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
		"33 25 0:29 / /sys/fs/cgroup/memory rw,nosuid shared:10 - cgroup cgroup rw,memory\n"
	unlimited = "9223372036854771712\n"
)

// The limit that a process runs under is found where the systems in use put it.
func TestMemoryLimitIsFound(t *testing.T) {
	for _, tt := range []struct {
		name       string
		files      []string
		configured int64
		want       int64 // MiB
		from       string
	}{
		{"nothing", nil, 0, 0, ""},
		{"the machine", []string{"proc/meminfo", meminfo}, 0, 8192, "machine"},
		{"configured", []string{"proc/meminfo", meminfo}, 300 << 20, 300, "--memory-limit"},
		{"systemd, MemoryMax= of a service", []string{"proc/meminfo", meminfo, "proc/self/mountinfo", mountV2, "proc/self/cgroup", "0::/system.slice/carillon.service\n",
			"sys/fs/cgroup/system.slice/carillon.service/memory.max", "314572800\n", "sys/fs/cgroup/system.slice/memory.max", "max\n"}, 0, 300, "carillon.service/memory.max"},
		{"of the slice that it is in", []string{"proc/meminfo", meminfo, "proc/self/mountinfo", mountV2, "proc/self/cgroup", "0::/a.slice/b.service\n",
			"sys/fs/cgroup/a.slice/b.service/memory.max", "max\n", "sys/fs/cgroup/a.slice/memory.max", "209715200\n"}, 0, 200, "a.slice/memory.max"},
		{"MemoryHigh=", []string{"proc/meminfo", meminfo, "proc/self/mountinfo", mountV2, "proc/self/cgroup", "0::/a\n",
			"sys/fs/cgroup/a/memory.max", "314572800\n", "sys/fs/cgroup/a/memory.high", "104857600\n"}, 0, 100, "memory.high"},
		{"a container with a namespace of its own", []string{"proc/meminfo", meminfo, "proc/self/mountinfo", mountV2, "proc/self/cgroup", "0::/\n",
			"sys/fs/cgroup/memory.max", "314572800\n"}, 0, 300, "/sys/fs/cgroup/memory.max"},
		{"a container whose mount is a part", []string{"proc/meminfo", meminfo, "proc/self/cgroup", "0::/docker/abc/inner\n",
			"proc/self/mountinfo", strings.Replace(mountV2, "0:26 / ", "0:26 /docker/abc ", 1),
			"sys/fs/cgroup/memory.max", "314572800\n", "sys/fs/cgroup/inner/memory.max", "max\n"}, 0, 300, "/sys/fs/cgroup/memory.max"},
		{"version 1", []string{"proc/meminfo", meminfo, "proc/self/mountinfo", mountV1, "proc/self/cgroup", "9:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/\n",
			"sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "314572800\n", "sys/fs/cgroup/memory/memory.limit_in_bytes", unlimited}, 0, 300, "abc/memory.limit_in_bytes"},
		{"version 1, nested", []string{"proc/meminfo", meminfo, "proc/self/mountinfo", mountV1, "proc/self/cgroup", "4:memory:/a/b/c\n",
			"sys/fs/cgroup/memory/a/b/c/memory.limit_in_bytes", unlimited, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "104857600\n"}, 0, 100, "a/memory.limit_in_bytes"},
		{"version 1 without a limit", []string{"proc/meminfo", meminfo, "proc/self/mountinfo", mountV1, "proc/self/cgroup", "4:memory:/a\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes", unlimited}, 0, 8192, "machine"},
		{"both versions, the memory in the first", []string{"proc/meminfo", meminfo, "proc/self/mountinfo", mountV1 + mountV2, "proc/self/cgroup", "4:memory:/a\n0::/b\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "314572800\n"}, 0, 300, "a/memory.limit_in_bytes"},
		{"more than the group allows", []string{"proc/meminfo", meminfo, "proc/self/mountinfo", mountV2, "proc/self/cgroup", "0::/\n",
			"sys/fs/cgroup/memory.max", "314572800\n"}, 1 << 40, 300, "memory.max"},
		{"nonsense", []string{"proc/meminfo", "MemTotal: many\n", "proc/self/mountinfo", "x - y\n\n- - -\n", "proc/self/cgroup", "0:\n\n::\n4:memory\n"}, 0, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := FindMemory(tree(t, tt.files...), tt.configured)
			if got.Bytes>>20 != tt.want || !strings.Contains(got.From, tt.from) || (got.From == "") != (tt.from == "") {
				t.Errorf("%d MiB from %q, want %d from %q", got.Bytes>>20, got.From, tt.want, tt.from)
			}
		})
	}
	before := debug.SetMemoryLimit(200 << 20)
	defer debug.SetMemoryLimit(before)
	if got := FindMemory(tree(t, "proc/meminfo", meminfo), 0); got.Bytes != 200<<20 || got.From != "GOMEMLIMIT" {
		t.Errorf("%+v", got)
	}
}

func TestMemoryMark(t *testing.T) {
	f := func(limit, mark int64) {
		t.Helper()
		if got := (Memory{Bytes: limit << 20}).Mark() >> 20; got != mark {
			t.Errorf("%d MiB: adds are refused at %d, want %d", limit, got, mark)
		}
	}
	f(0, 0)
	f(64, 32)
	f(300, 172)
	f(1024, 768)
	f(65536, 49152)
}

// The process's need of memory follows the live objects, not those that were.
func TestMemoryUseCountsTheHeap(t *testing.T) {
	m := NewMemoryUse(0, nil)
	runtime.GC()
	runtime.GC() // objects that other tests have left in pools live through one
	before := m.Now()
	held := make([]byte, 64<<20)
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
	runtime.GC()
	if grown := m.Now() - before; grown < 60<<20 || grown > 100<<20 {
		t.Errorf("64 MiB that live count as %d", grown)
	}
	runtime.KeepAlive(held) // and no longer
	runtime.GC()
	if left := m.Now() - before; left > 20<<20 {
		t.Errorf("%d bytes count that nobody holds", left)
	}
}
