package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"carillon/internal/vfs"
	"carillon/test/testkit"
	"carillon/wal"
)

// The log of a node that ran is good; one flipped bit in it is found, named with file and offset,
// and left as it is; and the node refuses to start on it.
func TestWalVerifyFindsAFlippedBit(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	data := filepath.Join(t.TempDir(), "data")
	node, url := serve(t, "--data", data)
	for _, id := range []string{"a", "b", "c", "d"} {
		ctlSays(t, url, "add", "try", "--id", id, "--delay", "1h", "--payload", `"findable-`+id+`"`, "--callback", "http://127.0.0.1:1/")
	}
	node.signal(t, syscall.SIGTERM)
	if got := node.wait(t); got.code != exitOK {
		t.Fatalf("after SIGTERM: %+v", got)
	}
	got := carillon(t, "", nil, "wal", "verify", data)
	if got.code != exitOK || !strings.Contains(got.out, "good: 1 streams") {
		t.Fatalf("verify of a good log: %+v", got)
	}
	if got := carillon(t, "", nil, "wal", "inspect", data, "--frames"); got.code != exitOK || !strings.Contains(got.out, "frame 1:") {
		t.Errorf("inspect: %+v", got)
	}

	file, at := findInFiles(t, data, "findable-a")
	flipped := testkit.File(t, file)
	flipped[at] ^= 1
	testkit.Must(t, os.WriteFile(file, flipped, 0o600))
	for _, args := range [][]string{{"wal", "verify", data}, {"wal", "inspect", data}, serveArgs("--data", data)} {
		got, code := carillon(t, "", nil, args...), exitFailure
		if args[0] == "serve" {
			code = exitDown
		}
		if got.code != code || !strings.Contains(got.err, filepath.Base(file)) || !strings.Contains(got.err, "offset") {
			t.Errorf("%s: exit %d, stderr %q", args[0], got.code, got.err)
		}
	}
	after, err := os.ReadFile(file)
	if err != nil || string(after) != string(flipped) {
		t.Errorf("the damaged file was changed (%v)", err)
	}
}

func TestWalVerifyOfNothingFails(t *testing.T) {
	if got := carillon(t, "", nil, "wal", "verify", t.TempDir()); got.code != exitFailure || !strings.Contains(got.err, "no log") {
		t.Errorf("got %+v", got)
	}
	none := filepath.Join(t.TempDir(), "none")
	if got := carillon(t, "", nil, "wal", "verify", none); got.code != exitFailure || !strings.HasSuffix(got.err, "none: no such file or directory; is this the data directory?\n") {
		t.Errorf("got %+v", got)
	}
}

// TestWalVerifyOfAnEmptyLogFails: each file is as it should be, and all that was in them is gone.
func TestWalVerifyOfAnEmptyLogFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wal", "0")
	testkit.Must(t, os.MkdirAll(dir, 0o700))
	log, err := wal.Open(vfs.OS{}, dir, wal.Options{}, nil)
	testkit.Must(t, err)
	testkit.Must(t, log.Close())
	if got := carillon(t, "", nil, "wal", "verify", dir); got.code != exitFailure || !strings.Contains(got.err, "is empty, and there is no snapshot") {
		t.Errorf("got %+v", got)
	}
}

func findInFiles(t *testing.T, dir, text string) (name string, at int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if i := strings.Index(string(content), text); i >= 0 && name == "" {
			name, at = path, i
		}
		return err
	})
	testkit.Must(t, err)
	if name == "" {
		t.Fatalf("%q is in no file of %s", text, dir)
	}
	return name, at
}
