package recurrence

import (
	"archive/zip"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"
)

// Version is the version of the IANA time zone data base in zoneinfo.zip. "make zones" writes both
// from the Go distribution.
const Version = "2025c"

//go:embed zoneinfo.zip
var zoneinfo string

// files are the zones of the data base.
var files = sync.OnceValue(func() map[string]*zip.File {
	r, err := zip.NewReader(strings.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		panic(fmt.Sprintf("read the embedded zones: %v", err))
	}
	byName := make(map[string]*zip.File, len(r.File))
	for _, f := range r.File {
		if !strings.HasSuffix(f.Name, "/") {
			byName[f.Name] = f
		}
	}
	return byName
})

// Zones are the time zones that a node knows. They come from the release and never from the
// machine, so that all nodes of one release compute the same times. A zone is parsed when it is
// first used. Safe for use by any goroutine.
type Zones struct {
	lacks  []string
	parsed sync.Map // *time.Location by name; as many as there are zones in the world
}

// Release are the zones of this release.
var Release = &Zones{}

// Without returns the zones of a release that lacks some, for tests.
func Without(names ...string) *Zones { return &Zones{lacks: names} }

// Known reports whether there is a zone of this name; "" is UTC.
func (z *Zones) Known(name string) bool {
	return name == "" || files()[name] != nil && !slices.Contains(z.lacks, name)
}

// Load returns a zone by its IANA name; "" is UTC. The error names one that may be meant.
func (z *Zones) Load(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if zone, ok := z.parsed.Load(name); ok {
		return zone.(*time.Location), nil
	}
	if !z.Known(name) {
		return nil, unknownZone(name)
	}
	data, err := readZone(name)
	if err != nil {
		return nil, fmt.Errorf("zone %q: %w", name, err)
	}
	zone, err := time.LoadLocationFromTZData(name, data)
	if err != nil {
		return nil, fmt.Errorf("zone %q: %w", name, err)
	}
	z.parsed.Store(name, zone)
	return zone, nil
}

func readZone(name string) ([]byte, error) {
	f, err := files()[name].Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// maxZone bounds how much of an unknown name is repeated and compared.
const maxZone = 64

func unknownZone(name string) error {
	name = name[:min(len(name), maxZone)]
	if like := similar(name); like != "" {
		return fmt.Errorf("unknown zone %q: did you mean %q?", name, like)
	}
	return fmt.Errorf(`unknown zone %q: must be a name of the IANA data base, like "Europe/Berlin"`, name)
}

// word is a text in small letters, with the set of its letters as bits.
type word struct {
	text    string
	letters uint64
}

func wordOf(text string) word {
	w := word{text: text}
	for i := range len(text) {
		w.letters |= 1 << (text[i] & 63)
	}
	return w
}

// cityOf is the part of a name behind its last slash.
func cityOf(name string) word { return wordOf(name[strings.LastIndexByte(name, '/')+1:]) }

// spelling is a zone's name as similar compares it.
type spelling struct {
	zone        string
	whole, city word
}

// spellings are the zones that somebody may mean, in order. Fixed offsets are never meant:
// Etc/GMT+2 lies west of Greenwich.
var spellings = sync.OnceValue(func() []spelling {
	var list []spelling
	for _, zone := range slices.Sorted(maps.Keys(files())) {
		if !strings.HasPrefix(zone, "Etc/") && (!strings.HasPrefix(zone, "GMT") || zone == "GMT") {
			list = append(list, spelling{zone, wordOf(strings.ToLower(zone)), cityOf(strings.ToLower(zone))})
		}
	}
	return list
})

// similar returns the zone that somebody may have meant: in other letters' case, without its
// continent, or with one or two typing errors. "" if there is none.
func similar(name string) string {
	meant := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), " ", "_")
	whole, city := wordOf(meant), cityOf(meant)
	best, least := "", min(3, len(meant)/2)
	for _, s := range spellings() {
		off := distance(whole, s.whole, least)
		if len(city.text) > 3 && s.city != s.whole {
			off = min(off, distance(city, s.city, least))
		}
		if off < least {
			best, least = s.zone, off
		}
	}
	return best
}

// distance is the number of letters to insert, remove or replace (Levenshtein), or limit if it is
// not less. One change alters the length by one letter, and the set of letters by two, at most.
func distance(x, y word, limit int) int {
	a, b := x.text, y.text
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || bits.OnesCount64(x.letters^y.letters) > 2*limit {
		return limit
	}
	var row [maxZone]uint8 // y is of the name of a zone
	for j := range len(b) + 1 {
		row[j] = uint8(j)
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = uint8(i + 1)
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j+1]+1, row[j]+1)
		}
	}
	return int(row[len(b)])
}
