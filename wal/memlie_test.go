package wal

import (
	"bytes"
	"testing"
)

// TestMemFSLies: what a lying sync did not write is there until the power is cut, or until it is written again; what came to another place is
// there instead of what was there.
func TestMemFSLies(t *testing.T) {
	const sectors = 8
	sector := func(b byte) []byte { return bytes.Repeat([]byte{b}, sectorBytes) }
	for name, test := range map[string]struct {
		lie   Lie
		again bool // the first sector is written and synced again, truly
		want  string
		shown string
	}{
		"the truth": {Lie{}, false, "nnnnoooo", "nnnnoooo"},
		"all lost":  {Lie{Told: true}, false, "oooooooo", "nnnnoooo"},
		"one lost":  {Lie{Told: true, Skip: 6, Count: 1}, false, "nnonoooo", "nnnnoooo"},
		"elsewhere": {Lie{Told: true, Skip: 1, Count: 1, Shift: 4}, false, "nonnonoo", "nnnnoooo"},
		"round":     {Lie{Told: true, Count: 1, Shift: -1}, false, "onnnooon", "nnnnoooo"},
		"healed":    {Lie{Told: true}, true, "nooooooo", "nnnnoooo"},
		"shown":     {Lie{Told: true, Count: 2, Shown: true}, false, "oonnoooo", "oonnoooo"},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewMemFS()
			f, err := m.Create("x")
			must(t, err)
			_, err = f.WriteAt(bytes.Repeat([]byte{'o'}, sectors*sectorBytes), 0)
			must(t, err)
			must(t, f.Sync())
			must(t, m.SyncDir(""))
			m.SetLiar(func(string, bool) Lie { return test.lie })
			_, err = f.WriteAt(bytes.Repeat([]byte{'n'}, sectors/2*sectorBytes), 0)
			must(t, err)
			must(t, f.Datasync())
			m.SetLiar(nil)
			if test.again {
				_, err = f.WriteAt(sector('n'), 0)
				must(t, err)
				must(t, f.Sync())
			}
			for _, is := range []struct {
				what, want string
				fs         *MemFS
			}{{"seen", test.shown, m}, {"after a power cut", test.want, lostAll(m)}} {
				b, err := readFile(is.fs, "x", nil, 1<<20)
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

// TestMemFSLiesOfNames: a directory that was not synced though the disk said so, and a size.
func TestMemFSLiesOfNames(t *testing.T) {
	m := NewMemFS()
	f, err := m.Create("x")
	must(t, err)
	m.SetLiar(func(_ string, dir bool) Lie { return Lie{Told: dir} })
	must(t, m.SyncDir(""))
	if _, err := lostAll(m).Stat("x"); err == nil {
		t.Error("the name is there")
	}
	m.SetLiar(func(_ string, dir bool) Lie { return Lie{Told: !dir, Short: true} })
	must(t, m.SyncDir(""))
	_, err = f.Write([]byte("abc"))
	must(t, err)
	must(t, f.Sync())
	if e, err := lostAll(m).Stat("x"); err != nil || e.Bytes != 0 {
		t.Errorf("%d bytes, %v", e.Bytes, err)
	}
}
