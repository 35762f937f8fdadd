package recurrence

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestZonesAreTheReleases: neither the machine's files nor $ZONEINFO are read, whatever they say.
func TestZonesAreTheReleases(t *testing.T) {
	tokyo, err := Release.Load("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	// A directory in which Berlin is Tokyo, and which has names of its own.
	dir := t.TempDir()
	data, err := readZone("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Europe/Berlin", "Europe/Paris", "posix/Europe/Berlin", "localtime", "Mars/Olympus"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("ZONEINFO", dir)
	noon := time.Date(2027, 7, 1, 12, 0, 0, 0, time.UTC)
	for _, name := range []string{"Europe/Berlin", "Europe/Paris"} {
		zone, err := (&Zones{}).Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, offset := noon.In(zone).Zone(); offset != 2*3600 {
			t.Errorf("%s is %d s east in July: the machine's file was read", name, offset)
		}
	}
	for _, name := range []string{"posix/Europe/Berlin", "localtime", "Mars/Olympus", "Local"} {
		if _, err := Release.Load(name); err == nil || Release.Known(name) {
			t.Errorf("%q is a zone", name)
		}
	}
	if _, offset := noon.In(tokyo).Zone(); offset != 9*3600 {
		t.Errorf("Tokyo is %d s east", offset)
	}
}

// TestAllZonesLoad: each file of the data base is a zone.
func TestAllZonesLoad(t *testing.T) {
	zones := &Zones{}
	for name := range files() {
		if _, err := zones.Load(name); err != nil || !zones.Known(name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(files()); n < 500 {
		t.Errorf("%d zones: the data base is not whole", n)
	}
	if z := Without("Asia/Kathmandu"); z.Known("Asia/Kathmandu") || !z.Known("Asia/Tokyo") || !z.Known("") {
		t.Error("a release without one zone lacks others, or has it")
	}
}

// TestVersionOfZones: who replaces zoneinfo.zip gives the version it has, by "make zones".
func TestVersionOfZones(t *testing.T) {
	const sum = "8f55634d05f8bca1f7bc7c69c5933428c69357e0bdf565e5ba224e3f88ff12e8"
	got := sha256.Sum256([]byte(zoneinfo))
	if hex.EncodeToString(got[:]) != sum {
		t.Errorf("zoneinfo.zip has the sum %x, which is not that of %s: set Version and this sum", got, Version)
	}
}

func TestSimilarZones(t *testing.T) {
	for name, want := range map[string]string{
		"Berlin": "Europe/Berlin", "europe/berlin": "Europe/Berlin", "Europe/Berlni": "Europe/Berlin", "new york": "America/New_York", "America/NewYork": "America/New_York",
		"posix/Europe/Berlin": "Europe/Berlin", "right/Asia/Tokyo": "Asia/Tokyo", "utc": "UTC", "Asia/Kathmandoo": "Asia/Kathmandu",
		"Mars": "", "localtime": "", "Local": "", "": "", "x": "", "GMT+2": "", "posixrules": "", "../etc/passwd": "",
	} {
		if got := similar(name); got != want {
			t.Errorf("%q is taken for %q, want %q", name, got, want)
		}
	}
	if err := CheckCron("* * * * *", "Berlin"); err == nil || !strings.Contains(err.Error(), `did you mean "Europe/Berlin"?`) {
		t.Error(err)
	}
	long := strings.Repeat("x", 1<<20)
	if err := CheckCron("* * * * *", long); err == nil || len(err.Error()) > 200 {
		t.Errorf("a name of a megabyte: %.300v", err)
	}
}

func TestLocal(t *testing.T) {
	for _, c := range [][3]string{
		{"Europe/Berlin", "2027-01-15T09:00:00", "2027-01-15T08:00:00Z"},
		{"Europe/Berlin", "2027-03-28T02:30:00", "2027-03-28T01:30:00Z"}, // skipped: 03:30
		{"Europe/Berlin", "2027-03-28T02:00:00", "2027-03-28T01:00:00Z"},
		{"Europe/Berlin", "2027-03-28T03:00:00", "2027-03-28T01:00:00Z"},
		{"Europe/Berlin", "2027-10-31T02:30:00", "2027-10-31T00:30:00Z"}, // twice: the first
		{"Europe/Berlin", "2027-10-31T03:00:00", "2027-10-31T02:00:00Z"},
		{"America/New_York", "2027-11-07T01:30:00", "2027-11-07T05:30:00Z"},
		{"Australia/Lord_Howe", "2027-10-03T02:15:00", "2027-10-02T15:45:00Z"}, // half an hour
		{"Pacific/Apia", "2011-12-30T10:00:00", "2011-12-30T20:00:00Z"},        // a day that never was
		{"UTC", "2027-03-28T02:30:00", "2027-03-28T02:30:00Z"},
	} {
		zone, err := Release.Load(c[0])
		if err != nil {
			t.Fatal(err)
		}
		wall, _ := time.Parse("2006-01-02T15:04:05", c[1])
		if got := Local(wall, zone).UTC().Format(time.RFC3339); got != c[2] {
			t.Errorf("%s in %s is %s, want %s", c[1], c[0], got, c[2])
		}
	}
}

// A client can make a node look for similar names as often as it likes.
func BenchmarkUnknownZone(b *testing.B) {
	for b.Loop() {
		if similar("Europa/Ber_lin_nn") != "" {
			b.Fatal("found")
		}
	}
}
