package memfs

import (
	"bytes"
	"testing"

	"carillon/internal/vfs"
)

// TestSyncLies: data that a false sync did not write is there until the power is cut, or until it
// is written again. Data that came to another place is there instead of the data before.
func TestSyncLies(t *testing.T) {
	const sectors = 8
	sector := func(b byte) []byte { return bytes.Repeat([]byte{b}, sectorBytes) }
	for name, test := range map[string]struct {
		lie   SyncLie
		again bool // the first sector is written and synced again, truly
		want  string
		shown string
	}{
		"the truth": {SyncLie{}, false, "nnnnoooo", "nnnnoooo"},
		"all lost":  {SyncLie{Lies: true}, false, "oooooooo", "nnnnoooo"},
		"one lost":  {SyncLie{Lies: true, Skip: 6, Count: 1}, false, "nnonoooo", "nnnnoooo"},
		"elsewhere": {SyncLie{Lies: true, Skip: 1, Count: 1, Shift: 4}, false, "nonnonoo", "nnnnoooo"},
		"round":     {SyncLie{Lies: true, Count: 1, Shift: -1}, false, "onnnooon", "nnnnoooo"},
		"healed":    {SyncLie{Lies: true}, true, "nooooooo", "nnnnoooo"},
		"shown":     {SyncLie{Lies: true, Count: 2, DropCache: true}, false, "oonnoooo", "oonnoooo"},
	} {
		t.Run(name, func(t *testing.T) {
			m := New()
			f, err := m.Create("x")
			must(t, err)
			_, err = f.WriteAt(bytes.Repeat([]byte{'o'}, sectors*sectorBytes), 0)
			must(t, err)
			must(t, f.Sync())
			must(t, m.SyncDir(""))
			m.SetSyncLies(func(string, bool) SyncLie { return test.lie })
			_, err = f.WriteAt(bytes.Repeat([]byte{'n'}, sectors/2*sectorBytes), 0)
			must(t, err)
			must(t, f.Datasync())
			m.SetSyncLies(nil)
			if test.again {
				_, err = f.WriteAt(sector('n'), 0)
				must(t, err)
				must(t, f.Sync())
			}
			for _, is := range []struct {
				what, want string
				fs         *FS
			}{{"seen", test.shown, m}, {"after a power cut", test.want, lostAll(m)}} {
				b, err := vfs.ReadFile(is.fs, "x", nil, 1<<20)
				must(t, err)
				for i, want := range []byte(is.want) {
					if !bytes.Equal(b[i*sectorBytes:(i+1)*sectorBytes], sector(want)) {
						t.Errorf("%s: sector %d begins with %c, not %c", is.what, i, b[i*sectorBytes], want)
					}
				}
			}
		})
	}
}

// TestSyncLiesOfNamesAndSizes: a false sync of a directory loses its names, one of a file its size.
func TestSyncLiesOfNamesAndSizes(t *testing.T) {
	m := New()
	f, err := m.Create("x")
	must(t, err)
	m.SetSyncLies(func(_ string, dir bool) SyncLie { return SyncLie{Lies: dir} })
	must(t, m.SyncDir(""))
	if _, err := lostAll(m).Stat("x"); err == nil {
		t.Error("the name is there")
	}
	m.SetSyncLies(func(_ string, dir bool) SyncLie { return SyncLie{Lies: !dir, KeepSize: true} })
	must(t, m.SyncDir(""))
	_, err = f.Write([]byte("abc"))
	must(t, err)
	must(t, f.Sync())
	if e, err := lostAll(m).Stat("x"); err != nil || e.Bytes != 0 {
		t.Errorf("%d bytes, %v", e.Bytes, err)
	}
}
