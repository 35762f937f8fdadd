package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMigrationKeepsEveryByte: members of any bytes come out of Redis with their times, each once,
// however often they are read and imported.
func TestMigrationKeepsEveryByte(t *testing.T) {
	t.Parallel()
	address := redisServer(t)
	p := serve(t, t.TempDir())
	m := newClient(p)
	const count = 1234
	due, random := time.Now().Add(time.Hour).UnixMilli(), rand.New(rand.NewPCG(1, 2))
	want := map[string]int64{} // due by payload
	var commands strings.Builder
	for i := range count {
		payload := []byte(fmt.Sprintf("{\"n\": %d,\n\"x\":[1, 2]}", i))
		switch i % 3 {
		case 0:
			payload = fmt.Appendf(nil, `{"n": %d, "big": 12345678901234567890}`, i)
		case 1:
			for range random.IntN(300) {
				payload = append(payload, byte(random.Uint32()))
			}
		}
		want[string(payload)] = due + int64(i)
		fmt.Fprintf(&commands, "*4\r\n$4\r\nZADD\r\n$7\r\ndelayed\r\n$13\r\n%d\r\n$%d\r\n%s\r\n", due+int64(i), len(payload), payload)
	}
	load := exec.Command("redis-cli", "-u", "redis://"+address, "--pipe")
	load.Stdin = strings.NewReader(commands.String())
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}

	read := func() string {
		text, _ := tool(t, 0, "migrate", "redis", "--redis", "redis://"+address, "--zset", "delayed", "--unit", "ms")
		return text
	}
	file, text := filepath.Join(t.TempDir(), "jobs.ndjson"), read()
	if again := read(); again != text {
		t.Error("a second reading differs")
	}
	writeFile(t, file, text)
	for _, said := range []string{fmt.Sprintf("%d added, 0 there", count), fmt.Sprintf("0 added, %d there", count)} {
		if out, _ := tool(t, 0, "ctl", "--url", p.url, "import", file); !strings.Contains(out, said) {
			t.Errorf("the import printed %q, not %q", out, said)
		}
	}
	query, found := "?limit=1000", 0
	for {
		var page struct {
			Timers []struct {
				DueMs   int64           `json:"due_ms"`
				Payload json.RawMessage `json:"payload"`
				Base64  string          `json:"payload_base64"`
			} `json:"timers"`
			Next string `json:"next_cursor"`
		}
		m.must(t, 200, "GET", "/v1/topics/delayed/timers"+query, "").decode(t, &page)
		for _, timer := range page.Timers {
			payload := string(timer.Payload)
			if payload == "" {
				raw, _ := base64.StdEncoding.DecodeString(timer.Base64)
				payload = string(raw)
			}
			if want[payload] != timer.DueMs {
				t.Fatalf("%q is due at %d, not %d", payload, timer.DueMs, want[payload])
			}
			delete(want, payload)
			found++
		}
		if page.Next == "" {
			break
		}
		query = "?limit=1000&cursor=" + page.Next
	}
	if found != count || len(want) != 0 {
		t.Errorf("%d timers of %d jobs; %d are missing", found, count, len(want))
	}
}
