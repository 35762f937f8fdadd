package halt

import (
	"errors"
	"strings"
	"testing"

	"carillon/test/memfs"
)

// TestFirstHaltStays: a start is refused for the reason of the first halt, even if the record cannot
// be read.
func TestFirstHaltStays(t *testing.T) {
	fsys := memfs.New()
	if err := fsys.MkdirAll("data"); err != nil {
		t.Fatal(err)
	}
	if err := Check(fsys, "data"); err != nil {
		t.Fatalf("a directory without a halt is refused: %v", err)
	}
	first := &Error{OldDirectory, errors.New("the first")}
	if err := Record(fsys, "data", 0, first); !errors.Is(err, first) {
		t.Errorf("it ends by %v", err)
	}
	_ = Record(fsys, "data", 0, &Error{LostEnd, errors.New("the second")})
	err := Check(fsys, "data")
	if why, ok := errors.AsType[*Error](err); !ok || why.Reason != OldDirectory || !strings.Contains(err.Error(), "the first") {
		t.Errorf("it is refused by %v", err)
	}
	if err := fsys.Damage("data/halted.json", func([]byte) []byte { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, ok := errors.AsType[*Error](Check(fsys, "data")); !ok {
		t.Error("an unreadable record refuses no start")
	}
}

// TestHaltOnAFullDisk: a halt that finds no room for its reason refuses a start all the same.
func TestHaltOnAFullDisk(t *testing.T) {
	for _, free := range []int64{1, 20} {
		fsys := memfs.New()
		if err := fsys.MkdirAll("data"); err != nil {
			t.Fatal(err)
		}
		fsys.SetFree(free)
		if err := Record(fsys, "data", 0, &Error{LostEnd, errors.New("the reason")}); strings.Contains(err.Error(), "could not be stored") {
			t.Errorf("%d bytes free: %v", free, err)
		}
		err := Check(fsys, "data")
		if _, ok := errors.AsType[*Error](err); !ok || !strings.Contains(err.Error(), "no room to store why") || !strings.Contains(err.Error(), "must not vote") {
			t.Errorf("%d bytes free: it is refused by %v", free, err)
		}
	}
}
