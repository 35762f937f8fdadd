package e2e

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
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
	redis := "redis://:secret@" + redisServer(t, "--requirepass", "secret") + "/3"
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
	load := exec.Command("redis-cli", "-u", strings.Replace(redis, ":secret", "default:secret", 1), "--pipe")
	load.Stdin = strings.NewReader(commands.String())
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}

	read := func() string {
		text, _ := tool(t, 0, "migrate", "redis", "--redis", redis, "--zset", "delayed", "--unit", "ms")
		return text
	}
	if _, why := tool(t, 1, "migrate", "redis", "--redis", strings.Replace(redis, "secret", "wrong", 1), "--zset", "delayed"); !strings.Contains(why, "AUTH: ") || strings.Contains(why, ":wrong") {
		t.Errorf("a wrong password: %s", why)
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

// migrated is a line of a file for an import.
type migrated struct {
	Export *struct {
		Topic  string
		Policy struct{ Lease string }
	}
	ID       string
	AtMs     int64           `json:"at_ms"`
	Payload  json.RawMessage `json:"payload"`
	Bytes    []byte          `json:"payload_base64"`
	Labels   []string
	Priority int
	Retry    struct {
		MaxAttempts int `json:"max_attempts"`
	}
	ExpiresAfter string `json:"expires_after"`
	topic, lease string
}

func (m migrated) payload() string { return string(m.Payload) + string(m.Bytes) }

// readMigrated has the timers of a file by topic and id.
func readMigrated(t *testing.T, text string) map[string]migrated {
	t.Helper()
	all := map[string]migrated{}
	topic, lease := "", ""
	for line := range strings.Lines(text) {
		m := migrated{topic: topic, lease: lease}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m.Export != nil {
			topic, lease = m.Export.Topic, m.Export.Policy.Lease
		} else if m.ID != "" {
			all[topic+"/"+m.ID] = m
		}
	}
	return all
}

// TestMigrationOfAsynqTasks: tasks that Asynq has written keep their bytes, types, times and the
// retries that are left.
func TestMigrationOfAsynqTasks(t *testing.T) {
	t.Parallel()
	address := redisServer(t)
	inFolder(t, ".", nil, asynqProgram(t), address)
	began := time.Now()
	text, _ := tool(t, 0, "migrate", "asynq", "--redis", "redis://"+address)
	got := readMigrated(t, text)
	for _, want := range []struct {
		name, payload, label string
		attempts             int
		after                time.Duration
		expires              string
	}{
		{"critical/order-77", `{"order":77}`, "type=charge", 26, 2 * time.Second, ""},
		{"default/mail-7", `{"user": 7}`, "type=email:deliver", 4, 0, ""},
		{"default/image-1", "\x00\x01\xff\n", "type=image_resize", 1, time.Hour, ""},
		{"default/twice", "again", "type=fail", 4, time.Hour, ""},
		{"default/sha256-e2fabfc672e350d3db4161e30994e9f1b519163480d8c90e1cc1c4655225503c", "", "type=report", 26, 48 * time.Hour, "2h0m0s"},
	} {
		m := got[want.name]
		early := began.Add(want.after).UnixMilli() - m.AtMs
		if m.payload() != want.payload || m.Retry.MaxAttempts != want.attempts || len(m.Labels) != 1 || m.Labels[0] != want.label || m.ExpiresAfter != want.expires || early < -2000 || early > 60000 {
			t.Errorf("%s is %+v, %d ms before what was asked", want.name, m, early)
		}
	}
	if len(got) != 5 {
		t.Errorf("there are %d: %s", len(got), text)
	}
}

// TestMigrationOfBeanstalkdJobs: jobs keep their bytes, order and delays, and none comes early.
// While a worker has one, nothing is migrated.
func TestMigrationOfBeanstalkdJobs(t *testing.T) {
	t.Parallel()
	address := beanstalkServer(t)
	requests := []string{"use a+b"}
	const jobs = 300
	body := func(n int) string { return fmt.Sprintf("%d\x00\r\n\xff", n) }
	began := time.Now()
	for n := range jobs {
		requests = append(requests, fmt.Sprintf("put %d %d %d %d\r\n%s", 1000+n%3, n%2*(100+n), 10+n%5, len(body(n)), body(n)))
	}
	stalk(t, address, requests...)
	text, _ := tool(t, 0, "migrate", "beanstalkd", "--address", address, "--id-prefix", "b")
	got := readMigrated(t, text)
	for n := range jobs {
		m := got[fmt.Sprint("a_b/b", n+1)]
		late := m.AtMs - began.Add(time.Duration(n%2*(100+n))*time.Second).UnixMilli()
		if m.payload() != body(n) || m.Priority != 2-n%3 || m.lease != "14s" || n%2 == 1 && late < 0 || late < -2000 || late > 60000 {
			t.Fatalf("job %d is %+v, %d ms late", n+1, m, late)
		}
	}
	if len(got) != jobs {
		t.Errorf("there are %d", len(got))
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "watch a+b\r\nreserve\r\n")
	answers := bufio.NewReader(conn)
	for range 2 {
		if _, err := answers.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if text, why := tool(t, 1, "migrate", "beanstalkd", "--address", address); strings.Contains(text, `"end"`) || !strings.Contains(why, "is reserved: stop the workers") {
		t.Errorf("%s%s", text, why)
	}
}
