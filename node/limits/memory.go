// Package limits finds what a process may use of its machine, memory and open files, and how much
// of both a node gives to its parts. It watches how much memory the process needs.
package limits

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// Memory is how many bytes a process may use, and the source of that limit. 0: there is none.
type Memory struct {
	Bytes int64
	From  string
}

// less takes the stricter of two limits.
func (m *Memory) less(bytes int64, from string) {
	if bytes > 0 && (m.Bytes == 0 || bytes < m.Bytes) {
		*m = Memory{bytes, from}
	}
}

// Of the limit a quarter, and no less than this, is left to work under way and to garbage that the
// collector has not found yet; of a small one half.
const leastSlack = 128 << 20

// Mark is where adds are refused.
func (m Memory) Mark() int64 { return max(m.Bytes/2, m.Bytes-max(m.Bytes/4, leastSlack)) }

// Soft is where the collector should begin to work harder: the limit must not be met, and the
// collector runs a little beyond its own.
func (m Memory) Soft() int64 { return (m.Mark() + m.Bytes) / 2 }

// Bounds of the memory of large bodies, or large answers, together: a sixteenth of the limit, since
// each is in memory several times on its way.
const (
	leastBudget = 16 << 20 // two batches of the largest
	mostBudget  = 256 << 20
)

// Budget is of the bodies, and of the answers.
func (m Memory) Budget() int {
	if m.Bytes == 0 {
		return mostBudget
	}
	return int(min(max(m.Bytes/16, leastBudget), mostBudget))
}

// FindMemory is the strictest limit of the configuration, GOMEMLIMIT, the control groups of
// this process and the machine. root is / but in tests.
func FindMemory(root string, configured int64) Memory {
	var m Memory
	m.less(configured, "--memory-limit")
	if n := debug.SetMemoryLimit(-1); n < math.MaxInt64 {
		m.less(n, "GOMEMLIMIT")
	}
	m.less(totalMemory(root), "the machine's memory")
	for _, g := range memoryGroups(root) {
		g.limit(root, &m)
	}
	return m
}

// memoryGroup is the control group of this process that bounds memory, as a directory beneath the
// mount of its hierarchy.
type memoryGroup struct {
	mount string
	path  string // relative to mount, clean
	files []string
}

// limit looks at the group and at all that it is in: each bounds the groups below it.
func (g memoryGroup) limit(root string, m *Memory) {
	for path := g.path; ; path = filepath.Dir(path) {
		for _, name := range g.files {
			file := filepath.Join(g.mount, path, name)
			b, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				continue
			}
			// Without a limit version 2 has the word max, and version 1 the largest number of
			// pages.
			if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n < math.MaxInt64/2 {
				m.less(n, file)
			}
		}
		if path == "/" || path == "." {
			return
		}
	}
}

// memoryGroups finds the groups by /proc/self/cgroup and the mounts of their hierarchies: of
// version 2, of version 1, or of both.
func memoryGroups(root string) (groups []memoryGroup) {
	own, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(own)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy:controllers:path
		if len(fields) != 3 {
			continue
		}
		second := fields[1] == ""
		if !second && !slices.Contains(strings.Split(fields[1], ","), "memory") {
			continue
		}
		g := memoryGroup{files: []string{"memory.limit_in_bytes"}}
		if second {
			g.files = []string{"memory.max", "memory.high"}
		}
		var base string
		if g.mount, base = groupMount(mounts, second); g.mount == "" {
			continue
		}
		// In a container the mount may show only the part of the hierarchy that is below its own
		// group.
		path := filepath.Clean("/" + fields[2])
		if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(base, "/")); ok && base != "/" {
			path = rest
		}
		g.path = filepath.Clean("/" + path)
		groups = append(groups, g)
	}
	return groups
}

// groupMount finds where a hierarchy is mounted, and which of its groups the mount begins with.
func groupMount(mountinfo []byte, second bool) (mount, base string) {
	for lines := bufio.NewScanner(bytes.NewReader(mountinfo)); lines.Scan(); {
		before, after, ok := strings.Cut(lines.Text(), " - ") // type, source, options
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		if second && right[0] == "cgroup2" || !second && right[0] == "cgroup" && slices.Contains(strings.Split(right[2], ","), "memory") {
			return unescapeMount(left[4]), unescapeMount(left[3])
		}
	}
	return "", ""
}

// unescapeMount undoes how mountinfo writes spaces.
func unescapeMount(s string) string { return strings.ReplaceAll(s, `\040`, " ") }

// totalMemory reads MemTotal, in bytes; 0 when it cannot be read.
func totalMemory(root string) int64 {
	f, err := os.Open(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

func (m Memory) String() string {
	if m.Bytes == 0 {
		return "none"
	}
	return fmt.Sprintf("%d MiB", m.Bytes>>20)
}
