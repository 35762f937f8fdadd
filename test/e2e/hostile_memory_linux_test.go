package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// cgroupWrapper runs a command in its own control group with a memory limit.
func cgroupWrapper(t *testing.T, limit int) []string {
	t.Helper()
	dir, file := newControlGroup(t)
	if err := os.WriteFile(filepath.Join(dir, file), fmt.Append(nil, limit), 0o644); err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(dir, "inner") // the limit is set above the process's group
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(inner) })
	return []string{"sh", "-c", "echo $$ > " + inner + `/cgroup.procs && exec "$@"`, "sh"}
}

// newControlGroup makes a control group and returns the file that limits its memory. Its parent is
// CARILLON_E2E_CGROUP, or the root of cgroup version 1 or 2. The test is skipped where none can be
// made.
func newControlGroup(t *testing.T) (dir, file string) {
	t.Helper()
	parents := []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}
	if named := os.Getenv("CARILLON_E2E_CGROUP"); named != "" {
		parents = []string{named}
	}
	var why []error
	for _, parent := range parents {
		dir := filepath.Join(parent, fmt.Sprintf("carillon-%d-%d", os.Getpid(), rand.Uint32()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			why = append(why, err)
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		for _, file := range []string{"memory.max", "memory.limit_in_bytes"} {
			_, err := os.Stat(filepath.Join(dir, file))
			if err == nil {
				return dir, file
			}
			why = append(why, err)
		}
	}
	t.Skipf("SKIPPED: no control group that bounds memory can be made here (CARILLON_E2E_CGROUP names one to make it in): %v", errors.Join(why...))
	return "", ""
}

var takenID = regexp.MustCompile(`"status":201,"id":"([^"]+)"`)

// diskDir is a directory that is on a disk also where TMPDIR is in memory: what is written there
// counts as memory of a control group.
func diskDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "carillon-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestMemoryLimit: a node that may use 300 MiB gets timers of all sizes without end. It answers 503
// before it exceeds the limit, everything else works, and adds work again once there is memory.
func TestMemoryLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	const limit = 300 << 20
	most := int64(120) // requests that are refused
	if os.Getenv("CARILLON_E2E_LONG") != "" {
		most = 400
	}
	for name, start := range map[string]func(t *testing.T) *process{
		"flag": func(t *testing.T) *process {
			return launch(t, nil, t.TempDir(), "--shards", "8", "--memory-limit", "300MiB")
		},
		"GOMEMLIMIT": func(t *testing.T) *process {
			return launch(t, []string{"env", "GOMEMLIMIT=300MiB"}, t.TempDir(), "--shards", "8")
		},
		"control group": func(t *testing.T) *process {
			return launch(t, cgroupWrapper(t, limit), diskDir(t), "--shards", "8")
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := start(t)
			node.awaitReady(t)
			c := newClient(node)
			c.topic(t, "many", "http://127.0.0.1:9/", "")
			var refused, taken, other atomic.Int64
			var one atomic.Pointer[string] // the id of a timer that was taken
			deadline := time.Now().Add(patience)
			var senders sync.WaitGroup
			for sender := range 8 {
				own := newClient(node)
				senders.Go(func() {
					for n := 0; time.Now().Before(deadline) && refused.Load() < most; n++ {
						size := []int{200, 30 << 10, 250 << 10}[(sender+n)%3]
						var ops []string
						for i := range min(1000, 7<<20/(size+200)) {
							ops = append(ops, fmt.Sprintf(`{"op":"add","id":"s%d-%d-%d","delay":"24h","payload":"%s"}`, sender, n, i, strings.Repeat("x", size)))
						}
						a := own.do("POST", "/v1/topics/many/batch?brief=true", `{"ops":[`+strings.Join(ops, ",")+`]}`)
						switch {
						case a.status == 503:
							refused.Add(1)
						case a.status == 200:
							taken.Add(int64(strings.Count(string(a.body), `"status":201`)))
							if id := takenID.FindSubmatch(a.body); id != nil {
								one.Store(new(string(id[1])))
							}
							if strings.Contains(string(a.body), `"status":503`) {
								refused.Add(1)
							}
						default:
							other.Add(1)
						}
					}
				})
			}
			senders.Wait()
			if !node.alive() {
				t.Fatalf("the node ended with %d", node.code)
			}
			peak := procMB(t, node, "VmHWM:")
			t.Logf("%d timers taken, %d requests refused; at most %d MiB resident", taken.Load(), refused.Load(), peak)
			if refused.Load() == 0 || other.Load() > 0 {
				t.Errorf("%d requests refused, %d without an answer", refused.Load(), other.Load())
			}
			if peak > limit>>20 {
				t.Errorf("the node took %d MiB", peak)
			}
			// What a refused batch had taken is free again, so the node may be just below its mark. It fills
			// up to the mark with what stays, and then refuses even the smallest add.
			var more int
			poll(t, patience, "a node that is full refuses the smallest add", func() bool {
				more++
				c.do("POST", "/v1/topics/many/timers", fmt.Sprintf(`{"id":"more-%d","delay":"24h","payload":"%s"}`, more, strings.Repeat("x", 250<<10)))
				return c.do("POST", "/v1/topics/many/timers", fmt.Sprintf(`{"id":"one-%d","delay":"24h"}`, more)).status == 503
			})
			if !strings.Contains(node.stderr.String(), "adds are refused: memory") {
				t.Error("the log does not say so")
			}
			c.must(t, 200, "POST", "/v1/topics/many/timers/"+*one.Load()+"/fire", "")
			c.must(t, 200, "DELETE", "/v1/topics/many?force=true", "")
			c.topic(t, "many", "http://127.0.0.1:9/", "")
			poll(t, 60*time.Second, "adds are taken again", func() bool {
				return c.do("POST", "/v1/topics/many/timers", `{"id":"again","delay":"24h"}`).status == 201
			})
			node.stop(t)
		})
	}
}
