package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"carillon/internal/vfs"
	"carillon/test/testkit"
)

// A backup of a running node, encrypted with its secrets key, is restored into another directory;
// timers that are overdue by then wait for the operator, and fire with the headers that were
// sealed.
func TestBackupAndRestore(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	dir := t.TempDir()
	key := filepath.Join(dir, "secrets.key")
	testkit.Must(t, os.WriteFile(key, []byte(strings.Repeat("ab", 32)+"\n"), 0o600))
	receiver := start(t, "sink", "--listen", "127.0.0.1:0")
	_, callback, _ := strings.Cut(receiver.line(t, "receiving on "), "receiving on ")
	lost, url := serve(t, "--data", filepath.Join(dir, "lost"), "--secrets-key", key)
	ctlSays(t, url, "add", "soon", "--id", "a", "--delay", "1h", "--payload", `"a"`, "--callback", callback, "--header", "Authorization: Bearer x")
	ctlSays(t, url, "add", "late", "--id", "b", "--delay", "1h", "--payload", `"b"`, "--callback", callback, "--header", "Authorization: Bearer x")
	ctlSays(t, url, "topics", "pause", "late")
	ctlSays(t, url, "fire", "late", "b") // overdue from now on, and waits
	ctlSays(t, url, "topics", "put", "late", "--policy", `{"secrets":["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}`)
	file := filepath.Join(dir, "carillon.backup")
	if got := carillon(t, "", nil, "ctl", "--url", url, "backup", file); got.code != exitOK || !strings.Contains(got.err, "it is encrypted") {
		t.Fatalf("backup: %+v", got)
	}
	lost.signal(t, syscall.SIGKILL)
	lost.wait(t)

	data := filepath.Join(dir, "restored")
	restoreIsRefused(t, file, data, key)
	got := carillon(t, "", nil, "restore", "--from", file, "--data", data, "--secrets-key", key, "--cluster", "drill-1")
	if got.code != exitOK || !strings.Contains(got.out, "as cluster drill-1\n") || !strings.Contains(got.out, "topics 2, timers scheduled 2,") || !strings.Contains(got.out, "overdue 1: they are held") || !strings.Contains(got.out, "TOPIC: late\n") || !strings.HasSuffix(got.out, "serve --data "+data+" --secrets-key "+key+"\n") {
		t.Fatalf("restore: %+v", got)
	}
	_, url = serve(t, "--data", data, "--secrets-key", key)
	if out := ctlSays(t, url, "list", "soon"); !strings.Contains(out, "a   scheduled") {
		t.Errorf("soon:\n%s", out)
	}
	ctlSays(t, url, "topics", "resume", "late")
	if line := receiver.line(t, "late/b"); !strings.Contains(line, `"b"`) {
		t.Errorf("the receiver saw %q", line)
	}
	if got := carillon(t, "", nil, "restore", "--from", file, "--data", data, "--secrets-key", key); got.code != exitFailure || !strings.Contains(got.err, "is not empty") {
		t.Errorf("restore over a node: %+v", got)
	}
}

// TestBackupIsThereWhenItSaysSo: who has read that a backup is made finds it under its name, also
// if the command ends as it says so, as where nobody reads its lines any more.
func TestBackupIsThereWhenItSaysSo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "carillon.backup")
	_, url := serve(t, "--data", filepath.Join(dir, "node"))
	reader, unread, err := os.Pipe()
	testkit.Must(t, err)
	testkit.Must(t, reader.Close())
	cmd := command(t, nil, "ctl", "--url", url, "backup", file)
	cmd.Stderr = unread
	err = cmd.Run()
	testkit.Must(t, unread.Close())
	if _, gone := os.Stat(file); gone != nil {
		t.Errorf("%v; the command: %v", gone, err)
	}
}

// TestPlainBackupNeedsAWord: a user who gives the cluster's key expects a backup that it has
// sealed. Anybody can make one that is not encrypted.
func TestPlainBackupNeedsAWord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, file, data := filepath.Join(dir, "secrets.key"), filepath.Join(dir, "plain.backup"), filepath.Join(dir, "restored")
	testkit.Must(t, os.WriteFile(key, []byte(strings.Repeat("ab", 32)+"\n"), 0o600))
	_, url := serve(t, "--data", filepath.Join(dir, "node"))
	ctlSays(t, url, "backup", file)
	args := []string{"restore", "--from", file, "--data", data, "--secrets-key", key}
	if got := carillon(t, "", nil, args...); got.code != exitFailure || !strings.Contains(got.err, "--allow-plain; nothing was restored") {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("something was written: %v", err)
	}
	if got := carillon(t, "", nil, append(args, "--allow-plain")...); got.code != exitOK || !strings.Contains(got.out, "restored the backup") {
		t.Errorf("%+v", got)
	}
}

// restoreIsRefused tries backups that must not be restored: nothing is written then.
func restoreIsRefused(t *testing.T, file, data, key string) {
	t.Helper()
	whole := testkit.File(t, file)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 4
	damaged := filepath.Join(t.TempDir(), "damaged")
	for _, tt := range []struct {
		name, want string
		content    []byte
		args       []string
	}{
		{"a flipped bit", "damaged at byte ", flipped, []string{"--secrets-key", key}},
		{"a cut file", "it was cut", whole[:len(whole)-1], []string{"--secrets-key", key}},
		{"no backup", "not a backup", []byte("hello"), nil},
		{"no key", "lacks the secrets key", whole, nil},
		{"no id of a cluster", "does not match", whole, []string{"--secrets-key", key, "--cluster", "a/b"}},
		{"no name of a node", "does not match", whole, []string{"--secrets-key", key, "--name", "a/b"}},
		{"another number of shards", "carillon ctl export and import", whole, []string{"--secrets-key", key, "--shards", "8"}},
	} {
		testkit.Must(t, os.WriteFile(damaged, tt.content, 0o600))
		got := carillon(t, "", nil, append([]string{"restore", "--from", damaged, "--data", data}, tt.args...)...)
		if got.code != exitFailure || !strings.Contains(got.err, tt.want) || !strings.Contains(got.err, "nothing was restored") {
			t.Errorf("%s: %+v", tt.name, got)
		}
		if _, err := os.Stat(data); err == nil {
			t.Errorf("%s: something was written", tt.name)
		}
	}
}

// A backup that the node gave up, or that was cut on its way, leaves no file, and the last good one
// is where it was.
func TestBackupIsWholeOrNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "b")
	testkit.Must(t, os.WriteFile(file, []byte("the last good one"), 0o600))
	runCtl(t, []ctlCase{{
		name: "cut", args: []string{"backup", file}, replies: []reply{{status: 200, body: "CARBKUP1"}}, asked: []string{"POST /v1/backup"},
		err: []string{"it was cut; the backup is of no use"}, code: exitFailure,
	}, {
		name: "refused", args: []string{"backup", file + ".2"}, asked: []string{"POST /v1/backup"},
		replies: []reply{{status: 403, body: `{"code":"forbidden","detail":"no","status":403}`}}, err: []string{"403 forbidden"}, code: exitFailure,
	}, {
		name: "a directory", args: []string{"backup", filepath.Dir(file)}, err: []string{"is a directory"}, code: exitUsage,
	}})
	t.Cleanup(func() { // after the cases, which run at once
		list, err := os.ReadDir(filepath.Dir(file))
		if content, _ := os.ReadFile(file); err != nil || len(list) != 1 || string(content) != "the last good one" {
			t.Errorf("%v, %v: %s", list, err, content)
		}
	})
}

// A node that hangs is given up soon, before its first byte and after it. One that lives may take
// longer than that.
func TestBackupOfANodeThatHangs(t *testing.T) {
	for _, c := range []struct {
		name, first string
		lives       bool
		want        string
	}{
		{"at once", "", false, "hangs: it takes connections and does not answer within 200ms"},
		{"in the middle", "CARBKUP1", false, "hangs: it takes connections and does not answer within 200ms"},
		{"it lives", "", true, "this is not a backup"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			end := make(chan struct{})
			node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v1/backup" {
					if !c.lives {
						<-end
					}
					return
				}
				_, _ = io.WriteString(w, c.first)
				if c.first != "" {
					w.(http.Flusher).Flush()
				}
				if c.lives {
					<-time.After(time.Second)
				} else {
					<-end
				}
			}))
			defer node.Close()
			defer close(end)
			begun := time.Now()
			got := carillon(t, "", nil, "ctl", "--url", node.URL, "--timeout", "200ms", "backup", filepath.Join(t.TempDir(), "b"))
			if got.code != exitFailure || !strings.Contains(got.err, c.want) || time.Since(begun) > deadline/2 {
				t.Errorf("after %v: %+v", time.Since(begun), got)
			}
		})
	}
}

// Two backups to one file would write into the same one, and the first to end would give it its name.
func TestBackupOfAFileThatIsBeingWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "b")
	first, err := vfs.OS{}.Lock(file + ".part")
	testkit.Must(t, err)
	defer first.Close()
	got := carillon(t, "", nil, "ctl", "--url", "http://127.0.0.1:1", "backup", file)
	if want := "another backup is being written to " + file + ".part: wait for its end, or name another file\n"; got.code != exitFailure || !strings.HasSuffix(got.err, want) {
		t.Errorf("%+v", got)
	}
	if _, err := os.Stat(file + ".part"); err != nil {
		t.Error(err)
	}
}

// TestRestoreFromHome: a shell leaves the ~ of --from=~/x as it is, so the command expands it.
func TestRestoreFromHome(t *testing.T) {
	t.Parallel()
	of, err := user.Current()
	testkit.Must(t, err)
	want := filepath.Join(of.HomeDir, "no-such.backup")
	if got := carillon(t, "", nil, "restore", "--from=~/no-such.backup", "--data", t.TempDir()); got.code != exitFailure || !strings.Contains(got.err, want) {
		t.Errorf("%+v, want %s", got, want)
	}
}
