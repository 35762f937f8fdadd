package wal

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"carillon/internal/vfs"
	"carillon/test/memfs"
)

const (
	recordedDir  = "CARILLON_WAL_RECORDED" // set in the process whose system calls are recorded
	recordedNote = "note"                  // a file beside the log, to which it writes what was acknowledged
)

// recordedCalls change files, or say which file a later call changes. What changes files in another
// way, and is not replayed, would make the contents differ at the end.
const recordedCalls = "openat,creat,write,pwrite64,writev,pwritev,pwritev2,lseek,truncate,ftruncate,fallocate,fsync,fdatasync," +
	"rename,renameat,renameat2,link,linkat,unlink,unlinkat,rmdir,mkdir,mkdirat,close,dup,dup2,dup3,copy_file_range,sendfile,splice"

// TestLifeThatIsRecorded runs under strace, by TestCrashMatrixOfRecordedCalls.
func TestLifeThatIsRecorded(t *testing.T) {
	dir := os.Getenv(recordedDir)
	if dir == "" {
		t.Skip("runs in the process of TestCrashMatrixOfRecordedCalls")
	}
	note, err := os.Create(filepath.Join(dir, recordedNote))
	must(t, err)
	twoLives(t, vfs.OS{}, filepath.Join(dir, testDir), func(acked, dropped int) {
		_, err := fmt.Fprintf(note, "%d %d\n", acked, dropped)
		must(t, err)
	})
	must(t, note.Close())
}

// TestCrashMatrixOfRecordedCalls is TestCrashMatrix for the bytes that users' data are written
// with: those of tidwall/wal on the real file system. It records the system calls of a life,
// replays them in memory, and cuts the power before each of them. At the end both have the same
// files.
func TestCrashMatrixOfRecordedCalls(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("SKIPPED: strace is not installed, so the real file system's calls were not recorded")
	}
	dir, record := t.TempDir(), filepath.Join(t.TempDir(), "calls")
	cmd := exec.Command("strace", "-f", "-y", "-xx", "-s", "16777216", "-e", "signal=none", "-e", "trace="+recordedCalls, "-o", record,
		os.Args[0], "-test.run=^TestLifeThatIsRecorded$")
	cmd.Env = append(os.Environ(), recordedDir+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		if bytes.Contains(out, []byte("ptrace")) {
			t.Skipf("SKIPPED: strace may not trace here: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	calls := readCalls(t, record, dir)
	replayed, points := replayCalls(t, calls, nil)
	if points < 200 {
		t.Fatalf("%d calls changed files; a life makes more", points)
	}
	if real := contents(t, vfs.OS{}, filepath.Join(dir, testDir)); !maps.EqualFunc(real, contents(t, replayed, testDir), bytes.Equal) {
		t.Fatal("what was replayed left other files: a call is missing in the record")
	}
	step := 1
	if testing.Short() {
		step = 7
	}
	replayCalls(t, calls, func(n int, fsys *memfs.FS, acked, dropped int) {
		if n%step != 0 {
			return
		}
		for k, opt := range powerCuts {
			r := rand.New(rand.NewPCG(uint64(n), uint64(k)))
			survives(t, fsys.CrashClone(r, opt), fmt.Sprintf("crash before call %d, way %d", n, k), acked, dropped)
		}
	})
}

// call is a system call of a recorded process that touches its directory.
type call struct {
	name  string
	args  []string // as strace writes them
	path  string   // of the file that the call is for, below the directory
	other string   // the new name of a rename
	data  []byte
	value int64 // that was returned
}

var (
	callLine = regexp.MustCompile(`^\d+ +(\w+)\((.*)\) += (-?\d+)`)
	begun    = regexp.MustCompile(`^(\d+) +(\w+)\((.*) <unfinished \.\.\.>$`)
	ended    = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>(.*)$`)
	quoted   = regexp.MustCompile(`"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?`)
	opened   = regexp.MustCompile(`^(\d+)<((?:\\x[0-9a-f]{2}|[^>])*)>$`)
)

// readCalls reads what strace wrote. A sync counts from its beginning, so that it covers nothing
// that was written meanwhile; all else from its end.
func readCalls(t *testing.T, record, dir string) (list []call) {
	t.Helper()
	file, err := os.Open(record)
	must(t, err)
	defer file.Close()
	dir, err = filepath.EvalSymlinks(dir)
	must(t, err)
	waiting := map[string]string{} // thread → the begun call
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := begun.FindStringSubmatch(line); m != nil {
			if waiting[m[1]] = m[1] + " " + m[2] + "(" + m[3]; !strings.HasSuffix(m[2], "sync") {
				continue
			}
			line, waiting[m[1]] = waiting[m[1]]+") = 0", "" // a sync that fails ends the life
		} else if m := ended.FindStringSubmatch(line); m != nil {
			if line = waiting[m[1]] + m[3]; waiting[m[1]] == "" {
				continue
			}
		}
		if c, ok := readCall(t, line, dir); ok {
			list = append(list, c)
		}
	}
	must(t, lines.Err())
	return list
}

func readCall(t *testing.T, line, dir string) (c call, ok bool) {
	t.Helper()
	m := callLine.FindStringSubmatch(line)
	if m == nil {
		return c, false // an exit, a signal
	}
	c.name = m[1]
	value, err := strconv.ParseInt(m[3], 10, 64)
	must(t, err)
	if c.value = value; value < 0 {
		return c, false // it changed nothing
	}
	text := m[2]
	var strs [][]byte
	for _, q := range quoted.FindAllStringSubmatch(text, -1) {
		if q[2] != "" {
			t.Fatalf("strace cut a string of %s off", c.name)
		}
		b, err := hex.DecodeString(strings.ReplaceAll(q[1], `\x`, ""))
		must(t, err)
		strs = append(strs, b)
	}
	c.args = strings.Split(quoted.ReplaceAllString(text, `""`), ", ")
	within := func(name string) (string, bool) {
		if name == dir {
			return ".", true
		}
		rest, ok := strings.CutPrefix(name, dir+"/")
		return rest, ok
	}
	if f := opened.FindStringSubmatch(c.args[0]); f != nil { // by descriptor
		name := f[2]
		if strings.Contains(name, `\x`) {
			b, err := hex.DecodeString(strings.ReplaceAll(name, `\x`, ""))
			must(t, err)
			name = string(b)
		}
		if c.path, ok = within(name); !ok {
			return c, false
		}
		c.args[0] = f[1]
		if strings.Contains(c.name, "write") {
			for _, s := range strs {
				c.data = append(c.data, s...)
			}
			if int64(len(c.data)) != c.value {
				t.Fatalf("%s of %d bytes wrote %d", c.name, len(c.data), c.value)
			}
		}
		return c, true
	}
	if len(strs) == 0 {
		return c, false
	}
	if c.path, ok = within(string(strs[0])); ok && len(strs) > 1 {
		c.other, ok = within(string(strs[1]))
	}
	return c, ok
}

// replayCalls does in memory what was recorded. It calls at before each change. It returns the
// files at the end, and how many changes there were.
func replayCalls(t *testing.T, calls []call, at func(n int, fsys *memfs.FS, acked, dropped int)) (fsys *memfs.FS, changes int) {
	t.Helper()
	fsys = memfs.New()
	acked, dropped := 0, 0
	type handle struct {
		file   vfs.File
		offset int64
	}
	open := map[string]*handle{}
	change := func() {
		if changes++; at != nil {
			at(changes, fsys, acked, dropped)
		}
	}
	for _, c := range calls {
		if c.path == recordedNote {
			if c.name == "write" {
				_, err := fmt.Sscanf(string(c.data), "%d %d\n", &acked, &dropped)
				must(t, err)
			}
			continue
		}
		var h *handle
		if len(c.args) > 0 {
			h = open[c.args[0]]
		}
		switch c.name {
		case "openat":
			flags, dir := openFlags(t, c.args[2])
			if dir {
				continue
			}
			if flags&(os.O_CREATE|os.O_TRUNC) != 0 {
				change()
			}
			f, err := fsys.OpenFile(c.path, flags)
			if err != nil {
				if e, statErr := fsys.Stat(c.path); statErr == nil && e.Dir {
					continue // opened to be listed or synced
				}
				t.Fatal(err)
			}
			open[strconv.FormatInt(c.value, 10)] = &handle{file: f}
		case "close":
			if h != nil {
				must(t, h.file.Close())
				delete(open, c.args[0])
			}
		case "write":
			change()
			_, err := h.file.WriteAt(c.data, h.offset)
			must(t, err)
			h.offset += c.value
		case "pwrite64":
			change()
			off, err := strconv.ParseInt(c.args[3], 10, 64)
			must(t, err)
			_, err = h.file.WriteAt(c.data, off)
			must(t, err)
		case "lseek":
			if h != nil {
				h.offset = c.value
			}
		case "ftruncate":
			change()
			size, err := strconv.ParseInt(c.args[1], 10, 64)
			must(t, err)
			must(t, h.file.Truncate(size))
		case "fsync", "fdatasync":
			change()
			if h != nil {
				must(t, h.file.Sync())
			} else {
				must(t, fsys.SyncDir(c.path))
			}
		case "renameat", "renameat2", "rename":
			change()
			must(t, fsys.Rename(c.path, c.other))
		case "unlinkat", "unlink", "rmdir":
			change()
			must(t, fsys.Remove(c.path))
		case "mkdirat", "mkdir":
			change()
			must(t, fsys.MkdirAll(c.path))
		default:
			t.Fatalf("%s(%v) of %s cannot be replayed", c.name, c.args, c.path)
		}
	}
	return fsys, changes
}

func openFlags(t *testing.T, text string) (flags int, dir bool) {
	t.Helper()
	for flag := range strings.SplitSeq(text, "|") {
		switch flag {
		case "O_RDONLY", "O_CLOEXEC", "O_LARGEFILE", "O_NONBLOCK", "O_NOFOLLOW":
		case "O_WRONLY":
			flags |= os.O_WRONLY
		case "O_RDWR":
			flags |= os.O_RDWR
		case "O_CREAT":
			flags |= os.O_CREATE
		case "O_EXCL":
			flags |= os.O_EXCL
		case "O_TRUNC":
			flags |= os.O_TRUNC
		case "O_DIRECTORY":
			dir = true
		default:
			t.Fatalf("flag %s cannot be replayed", flag)
		}
	}
	return flags, dir
}
