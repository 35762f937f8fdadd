package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func needStrace(t testing.TB) {
	t.Helper()
	if why := straceFault(); why != "" {
		t.Skipf("%s: what reaches the disk, and when, is not observed", why)
	}
}

// straceFault is the reason why strace cannot be used, "" if it can.
func straceFault() string {
	if _, err := exec.LookPath("strace"); err != nil {
		return "strace is not installed"
	}
	if err := exec.Command("strace", "-qq", "-o", os.DevNull, "true").Run(); err != nil {
		return fmt.Sprintf("strace may not trace here: %v", err)
	}
	return ""
}

// traced starts a node under strace. The trace has a line for each of the calls, with its time and
// file names.
func traced(t testing.TB, dir, calls string, more ...string) (p *process, trace string) {
	t.Helper()
	trace = filepath.Join(t.TempDir(), "trace")
	wrapper := append([]string{"strace", "-f", "-y", "-ttt", "-s", "1000", "-qq", "-e", "signal=none", "-o", trace, "-e", "trace=" + calls}, more...)
	p = launch(t, wrapper, dir)
	p.awaitReady(t)
	return p, trace
}

// TestSyncBeforeTheAnswer traces system calls: each 201 is sent after an fdatasync of the log that
// began after the add's frame was written.
func TestSyncBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	needStrace(t)
	dir := t.TempDir()
	node, trace := traced(t, dir, "write,writev,pwrite64,sendto,fsync,fdatasync")
	c := newClient(node)
	c.topic(t, "sync", "http://127.0.0.1:9/", "")
	const adds = 20
	for i := range adds {
		c.must(t, 201, "POST", "/v1/topics/sync/timers", fmt.Sprintf(`{"delay":"1h","payload":"mark-%03d"}`, i))
	}
	node.kill()
	for i := range adds {
		if err := syncedBefore(trace, fmt.Sprintf("mark-%03d", i)); err != nil {
			t.Errorf("add %d: %v", i, err)
		}
	}
}

// syncedBefore follows a mark through the trace: its frame is written to the log, a sync of the log
// begins and succeeds, its 201 is sent.
func syncedBefore(trace, mark string) error {
	f, err := os.Open(trace)
	if err != nil {
		return err
	}
	defer f.Close()
	written, synced := false, false
	pending := map[string]bool{} // threads in a sync that began after the frame
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		thread, _, _ := strings.Cut(line, " ")
		sync := strings.Contains(line, " fdatasync(") || strings.Contains(line, " fsync(")
		switch {
		case strings.Contains(line, mark) && strings.Contains(line, "/wal/"):
			written = true
		case strings.Contains(line, mark) && strings.Contains(line, "201 Created"):
			if !written || !synced {
				return fmt.Errorf("answered 201; frame written before: %v, synced before: %v", written, synced)
			}
			return nil
		case sync && strings.Contains(line, "/wal/") && written:
			synced = synced || strings.HasSuffix(line, "= 0")
			pending[thread] = strings.HasSuffix(line, "<unfinished ...>")
		case pending[thread] && strings.Contains(line, "sync resumed>"):
			synced = synced || strings.HasSuffix(line, "= 0")
			pending[thread] = false
		}
	}
	return fmt.Errorf("the trace has no 201 for it (%v)", lines.Err())
}

var injected = regexp.MustCompile(`(?m)^\d+ +(\d+\.\d+) .*\(INJECTED\)`)

// TestStorageFailure makes one write or sync of the log fail. Later ones succeed, but the process
// must not trust them: it acknowledges nothing more and exits within a second. After an I/O error
// its exit code keeps the systemd unit from restarting it. Started again by hand it has everything
// that it acknowledged, in a rewritten last segment.
func TestStorageFailure(t *testing.T) {
	needStrace(t)
	const segment, spare = "/wal/0/00000001/00000000000000000001", "/wal/0/spare/00000000000000000001"
	for _, tc := range []struct {
		name, call, fault string
		file              string
		says              string
		code              int
	}{
		// strace counts calls by thread. A spare segment whose sync fails is only discarded.
		{"sync of a batch", "fdatasync", "error=EIO:when=25", segment, "input/output error", exitDown},
		{"write", "write", "error=EIO:when=30", segment, "input/output error", exitDown},
		{"write on a full disk", "write", "error=ENOSPC:when=30", segment, "no space left", 1},
		{"sync of a full segment", "fsync", "error=EIO:when=1", segment, "input/output error", exitDown},
		{"turn to the next segment", "renameat", "error=EIO:when=2", spare, "input/output error", exitDown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			took := time.Hour
			for try := 0; try < 3 && took > time.Second; try++ { // the best of three: the machine may be busy
				dir := t.TempDir()
				took = min(took, storageFails(t, dir, tc.call, tc.says, tc.code, "-e", "inject="+tc.call+":"+tc.fault, "-P", dir+tc.file))
			}
			if took > time.Second {
				t.Errorf("the process ended %v after the failure", took)
			}
		})
	}
}

// storageFails returns how long after the failure the process ended.
func storageFails(t *testing.T, dir, call, says string, code int, flags ...string) (took time.Duration) {
	t.Helper()
	node, trace := traced(t, dir, call, flags...)
	c := newClient(node)
	c.topic(t, "eio", "http://127.0.0.1:9/", "")
	holdUp(t, c, node)
	book := addUntilItEnds(c, node, "e")
	if got := node.awaitExit(t, 60*time.Second); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	failed := failedAt(t, trace)
	took = node.endedAt.Sub(failed)
	if text := node.stderr.String(); !strings.Contains(text, says) {
		t.Errorf("it does not say why: %s", text)
	}
	newest := newestSegment(t, dir)
	was := inode(t, newest)
	node = supervise(t, dir, node)
	if inode(t, newest) == was {
		t.Errorf("%s is the file whose sync had failed", newest)
	}
	c.use(node)
	there := map[string]bool{}
	for _, tm := range c.all(t, "eio") {
		there[tm.ID] = true
	}
	acks := 0
	for _, e := range book.entries {
		w := e.versions[0]
		if w.effect != acked {
			continue
		}
		acks++
		if w.sent.After(failed) {
			t.Errorf("%s was sent %v after the failure, and acknowledged", e.id, w.sent.Sub(failed))
		}
		if !there[e.id] {
			t.Errorf("%s was acknowledged and is gone", e.id)
		}
	}
	t.Logf("%d acknowledged, %d there after the restart; the process ended %v after the failure", acks, len(there), took)
	return took
}

// TestStorageFailsAgainAndAgain: a sync fails in each of four processes, and each is restarted at
// once, despite its exit code. Nothing that any of them acknowledged is lost.
func TestStorageFailsAgainAndAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	t.Parallel()
	needStrace(t)
	dir := t.TempDir()
	var c *client
	var books []*ledger
	for n := range 4 {
		// A start syncs some dozen times; the failure must come after that.
		node, trace := traced(t, dir, "fdatasync", "-e", fmt.Sprintf("inject=fdatasync:error=EIO:when=%d", 60+5*n))
		if n == 0 {
			c = newClient(node)
			c.topic(t, "eio", "http://127.0.0.1:9/", "")
		}
		c.use(node)
		books = append(books, addUntilItEnds(c, node, fmt.Sprintf("r%d-", n)))
		if got := node.awaitExit(t, 60*time.Second); got != exitDown {
			t.Errorf("process %d: exit code %d", n, got)
		}
		failedAt(t, trace)
	}
	c.use(serve(t, dir))
	there := map[string]bool{}
	for _, tm := range c.all(t, "eio") {
		there[tm.ID] = true
	}
	for n, book := range books {
		acks := 0
		for _, e := range book.entries {
			if e.versions[0].effect != acked {
				continue
			}
			acks++
			if !there[e.id] {
				t.Errorf("%s was acknowledged by process %d and is gone", e.id, n)
			}
		}
		t.Logf("process %d acknowledged %d", n, acks)
		if acks == 0 {
			t.Errorf("process %d has acknowledged nothing", n)
		}
	}
}

// supervise checks that the systemd unit restarts the process unless its exit code is exitDown.
// Then it starts the node, as the unit or an operator would, and the first start must succeed.
func supervise(t *testing.T, dir string, ended *process) *process {
	t.Helper()
	unit, err := os.ReadFile("../../deploy/systemd/carillon.service")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^RestartPreventExitStatus=(.*)$`).FindStringSubmatch(string(unit))
	if m == nil {
		t.Fatal("the unit restarts whatever happens")
	}
	stays := slices.Contains(strings.Fields(m[1]), strconv.Itoa(ended.code))
	if want := ended.code == exitDown; stays != want {
		t.Errorf("after exit code %d the unit leaves it down: %v", ended.code, stays)
	}
	return serve(t, dir)
}

// newestSegment returns the last segment file of the log.
func newestSegment(t *testing.T, dir string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "wal", "0", "*", strings.Repeat("[0-9]", 20)))
	if err != nil {
		t.Fatal(err)
	}
	list = slices.DeleteFunc(list, func(name string) bool { return filepath.Base(filepath.Dir(name)) == "spare" })
	if len(list) == 0 {
		t.Fatal("there is no log")
	}
	return slices.Max(list)
}

func inode(t *testing.T, name string) uint64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(name, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// holdUp leaves a half-sent request and five hanging calls. Neither may keep a node alive whose log
// has failed.
func holdUp(t *testing.T, c *client, node *process) {
	t.Helper()
	half, err := net.Dial("tcp", strings.TrimPrefix(node.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { half.Close() })
	request := jsonPost("/v1/topics/eio/timers", `{"delay":"1h"}`)
	if _, err := io.WriteString(half, request[:len(request)-3]); err != nil {
		t.Fatal(err)
	}
	rcv := newReceiver(t, newGate().hold)
	c.topic(t, "hang", rcv.url(), "")
	for range 5 {
		c.must(t, 201, "POST", "/v1/topics/hang/timers", `{"delay_ms":0}`)
	}
	poll(t, patience, "calls are in flight", func() bool { return rcv.open.Load() == 5 })
}

// addUntilItEnds adds timers from eight clients until the node has exited.
func addUntilItEnds(c *client, node *process, prefix string) *ledger {
	book := newLedger()
	payload := `"` + strings.Repeat("x", 2000) + `"` // fills a segment soon
	var clients sync.WaitGroup
	for w := range 8 {
		clients.Go(func() {
			for i := 0; node.alive(); i++ {
				id := fmt.Sprintf("%s%d-%d", prefix, w, i)
				e, due := book.add(id, 0), time.Now().Add(time.Hour).UnixMilli()
				body := fmt.Sprintf(`{"id":%q,"at_ms":%d,"payload":%s}`, id, due, payload)
				book.wrote(e, payload, due, c.do("POST", "/v1/topics/eio/timers", body))
			}
		})
	}
	clients.Wait()
	return book
}

// failedAt returns the time in the trace at which the fault was injected.
func failedAt(t *testing.T, trace string) time.Time {
	t.Helper()
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	m := injected.FindStringSubmatch(string(text))
	if m == nil {
		t.Fatal("nothing failed")
	}
	seconds, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.UnixMicro(int64(seconds * 1e6))
}
