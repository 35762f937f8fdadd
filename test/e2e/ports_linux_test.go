package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// sockets returns the local addresses on which a process listens (TCP) or receives (UDP), in the
// hexadecimal form of /proc.
func (p *process) sockets(t testing.TB) (list []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", p.cmd.Process.Pid)
	links, err := filepath.Glob(dir + "fd/*")
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]bool{}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil {
			own[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")] = true
		}
	}
	const listening, unconnected = "0A", "07"
	for table, state := range map[string]string{"tcp": listening, "tcp6": listening, "udp": unconnected, "udp6": unconnected} {
		b, err := os.ReadFile(dir + "net/" + table)
		if err != nil {
			continue // a machine without IPv6
		}
		for _, line := range strings.Split(string(b), "\n") {
			if f := strings.Fields(line); len(f) > 9 && f[3] == state && own[f[9]] {
				list = append(list, table+" "+f[1])
			}
		}
	}
	slices.Sort(list)
	return list
}

// TestNodeAloneListensForItsClientsOnly: a single node opens the API's port only. With a key it
// also opens the ports for peers and gossip.
func TestNodeAloneListensForItsClientsOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := serve(t, dir)
	if open := p.sockets(t); len(open) != 1 {
		t.Errorf("a node alone listens at %v", open)
	}
	p.stop(t)
	key := filepath.Join(t.TempDir(), "key")
	writeFile(t, key, strings.Repeat("5a", 32)+"\n")
	p = serve(t, dir, "--gossip-key", key, "--peer", "127.0.0.1:0", "--gossip", "127.0.0.1:0")
	if open := p.sockets(t); len(open) != 4 { // the API, peers, gossip over TCP and over UDP
		t.Errorf("a node that others may join listens at %v", open)
	}
}
