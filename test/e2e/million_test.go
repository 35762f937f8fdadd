package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestManyTimers measures resident bytes per timer and the time to ready after kill -9, with 20,000
// timers or a million.
func TestManyTimers(t *testing.T) {
	timers := 20_000
	if os.Getenv("CARILLON_E2E_MILLION") != "" {
		timers = 1_000_000
	}
	const payloadBytes = 200
	dir := t.TempDir()
	node := serve(t, dir)
	c := newClient(node)
	c.topic(t, "many", "http://127.0.0.1:9/", "")
	empty := residentBytes(t, node)
	payload := strings.Repeat("m", payloadBytes-2)
	start := time.Now()
	for i := 0; i < timers; {
		ops := make([]string, 1000)
		for j := range ops {
			ops[j] = fmt.Sprintf(`{"op":"add","id":"m%d","delay":"%dm","payload":%q}`, i, 100_000+i%100_000, payload)
			i++
		}
		for _, status := range c.batch(t, "many", ops) {
			if status != 201 {
				t.Fatalf("add: status %d", status)
			}
		}
	}
	added := time.Since(start)
	full := residentBytes(t, node)
	t.Logf("added in %v (%.0f/s, one connection); resident %d MiB: %d bytes per timer of %d bytes payload",
		added, float64(timers)/added.Seconds(), full>>20, (full-empty)/int64(timers), payloadBytes)
	for range 3 {
		node.kill()
		node = serve(t, dir)
		c.use(node)
		text := node.gauge(t, `carillon_timers{state="scheduled"}`)
		if got, err := strconv.ParseFloat(text, 64); err != nil || int(got) != timers {
			t.Errorf("after kill -9 there are %s timers (%v)", text, err)
		}
		again := residentBytes(t, node)
		t.Logf("kill -9, start to ready: %v; resident %d MiB: %d bytes per timer", node.readyAfter, again>>20, (again-empty)/int64(timers))
	}
	node.stop(t)
}

// residentBytes is the resident memory of the process, 0 where there is no /proc.
func residentBytes(t testing.TB, p *process) int64 {
	t.Helper()
	return memoryOf(t, p, "VmRSS:")
}

// peakBytes is the process's peak resident memory.
func peakBytes(t testing.TB, p *process) int64 {
	t.Helper()
	return memoryOf(t, p, "VmHWM:")
}

func memoryOf(t testing.TB, p *process, field string) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Logf("resident memory is not known here: %v", err)
		return 0
	}
	_, rest, _ := strings.Cut(string(text), field)
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
