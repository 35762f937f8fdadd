package node

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// memoryLimit is three quarters of what this process may use: the machine's memory, or its control group's limit. 0 when neither can be read.
func memoryLimit() int64 {
	limit := totalMemory()
	if b, err := os.ReadFile("/sys/fs/cgroup/memory.max"); err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && (limit == 0 || n < limit) {
			limit = n
		}
	}
	return limit / 4 * 3
}

// totalMemory reads MemTotal, in bytes.
func totalMemory() int64 {
	f, err := os.Open("/proc/meminfo")
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
