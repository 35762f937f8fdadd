// Package carillon_test checks the shape of the whole tree: which folders may import which, which
// file may import a library, which folders reach nothing outside, and where the clock may be read.
// docs/ARCHITECTURE.md draws it.
package carillon_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// mayImport lists, for each layer, the other layers of this module that it may import. Imports
// point down only. A layer is a top folder with everything below it, except folders that are layers
// themselves.
var mayImport = map[string][]string{
	"cmd":              {"client", "timer/duration", "node", "transport", "loadtest", "internal/backup", "internal/bucket", "timer", "timer/recurrence", "wal", "internal/vfs"},
	"node":             {"node/feed", "node/member", "node/route", "node/task", "internal/audit", "internal/clocks", "internal/delivery", "transport", "ring", "shard", "shard/events", "shard/halt", "internal/feature", "internal/placement", "shard/scheduler", "shard/table", "shard/wire", "internal/history", "wheel", "wal", "internal/vfs", "internal/secret", "timer", "timer/bulk", "timer/encoding", "timer/recurrence", "internal/backup", "internal/bucket", "internal/tracing"},
	"node/feed":        {"node/task", "shard", "shard/events", "shard/table", "timer", "timer/encoding", "transport"},
	"internal/backup":  {"internal/secret", "timer"},
	"internal/bucket":  {"internal/backup"},
	"internal/tracing": {"timer"}, // edges only: shard and what is below it know no spans
	"node/member":      {"node/task", "internal/clocks", "transport", "ring", "shard", "shard/halt", "internal/feature", "internal/placement", "shard/table", "shard/wire", "wal", "internal/vfs", "internal/secret", "timer", "timer/encoding"},
	"node/route":       {"node/task", "internal/order", "ring", "shard", "shard/scheduler", "shard/wire", "timer", "timer/bulk", "timer/encoding"},
	"node/task":        {"internal/fan"}, // time and concurrency, as an interface
	"transport":        {"docs", "internal/audit", "internal/certificate", "internal/tracing", "internal/delivery", "internal/order", "internal/feature", "transport/api/internal", "timer/duration", "internal/fan", "internal/secret", "timer", "timer/bulk", "timer/recurrence"},
	"ring":             {"internal/feature", "internal/placement", "internal/secret", "timer", "timer/encoding"},
	"test/sim":         {"test/sim/forged", "test/memfs", "node/member", "node/route", "node/task", "internal/clocks", "internal/delivery", "shard", "shard/events", "shard/halt", "internal/feature", "shard/record", "shard/scheduler", "shard/table", "shard/table/index", "ring", "wal", "internal/vfs", "wheel", "transport", "internal/secret", "timer", "timer/bulk", "timer/recurrence"}, // the whole cluster in one goroutine
	"shard":            {"internal/delivery", "internal/feature", "internal/placement", "internal/reuse", "shard/events", "shard/halt", "shard/idle", "shard/raftlog", "shard/record", "shard/retention", "shard/scheduler", "shard/silence", "shard/snapshot", "shard/table", "shard/wire", "internal/clocks", "wal", "internal/vfs", "timer", "timer/encoding", "timer/recurrence"},
	"internal/history": {"internal/vfs"},
	"internal/audit":   {}, // a log of lines, and no more
	"internal/clocks":  {},
	"timer/duration":   {},
	"internal/fan":     {},
	"wheel":            {},
	"wal":              {"internal/vfs"},
	"internal/vfs":     {},
	"internal/secret":  {},
	"loadtest":         {"client", "timer/duration"},
	"test/memfs":       {"internal/vfs"},
	"test/testkit":     {"timer"},
	"test/sim/forged":  {},         // bytes for the tests of every layer, see TestImportsPointDown
	"client":           {},         // is compiled into other people's programs, a module of its own
	"clients":          {},         // in other languages, and the program that makes their types
	"docs":             {},         // pages that a node shows
	"docs/guides":      {"client"}, // programs
	"test/e2e":         {"client"}, // real processes, from outside
	"test/freeport":    {},         // addresses for tests, see TestImportsPointDown
	"test/s3server":    {"test/freeport"},
	"test/bench":       {},        // other people's programs, to compare with
	"test/bench/libs":  {"wheel"}, // libraries to compare with, a module of its own
	"deploy":           {},        // a program that reads our files for Kubernetes, a module of its own

	"internal/reuse":     {},                          // small lists that are used again
	"internal/order":     {},                          // a heap, a ring and a line by weight
	"internal/delivery":  {"internal/order", "timer"}, // what scheduler and callback exchange, so that neither knows the other
	"internal/feature":   {},                          // the level of formats that all nodes understand
	"internal/placement": {"timer"},

	"internal/certificate":   {}, // when one ends
	"transport/api/internal": {}, // readers of untrusted bytes, to be judged by themselves

	"shard/scheduler":     {"internal/delivery", "internal/order", "shard/table", "internal/clocks", "wheel", "timer", "timer/recurrence"},                                                                   // no raft, no log, no worker
	"shard/table":         {"shard/table/content", "shard/table/index", "shard/table/slab", "internal/feature", "internal/order", "internal/secret", "timer", "timer/encoding", "timer/recurrence", "wheel"}, // no raft, no log, no clock
	"shard/table/arena":   {"internal/order"},
	"shard/table/content": {"shard/table/arena", "shard/table/index", "internal/secret", "timer", "timer/encoding"},
	"shard/table/index":   {},
	"shard/table/slab":    {"timer"},
	"shard/events":        {"shard/table", "timer"},
	"shard/halt":          {"internal/vfs"},
	"shard/idle":          {},
	"shard/retention":     {"shard/record"},
	"shard/silence":       {},
	"shard/snapshot":      {"internal/vfs", "timer", "wal"},
	"shard/raftlog":       {"internal/reuse", "shard/record", "timer/encoding"}, // and raft's types
	"shard/record":        {"wal", "timer", "timer/encoding"},                   // and raft's types
	"shard/wire":          {"internal/feature", "timer", "timer/encoding"},

	"timer":            {"internal/secret"}, // which headers are credentials
	"timer/encoding":   {"timer"},
	"timer/bulk":       {"timer"},
	"timer/recurrence": {"timer"},
}

// soleImporter names the one product file that may import a library.
var soleImporter = map[string]string{
	"github.com/alecthomas/kong":       "cmd/carillon/cli.go",
	"github.com/tidwall/wal":           "wal/tidwall.go",
	"github.com/hashicorp/memberlist":  "ring/memberlist.go",
	"github.com/buraksezer/consistent": "ring/consistent.go",
	"github.com/sony/gobreaker/v2":     "transport/callback/breaker.go",
	"github.com/minio/minio-go/v7":     "internal/bucket/place.go",

	"github.com/go-logr/logr":                                         "internal/tracing/tracing.go",
	"go.opentelemetry.io/otel":                                        "internal/tracing/tracing.go",
	"go.opentelemetry.io/otel/trace":                                  "internal/tracing/tracing.go",
	"go.opentelemetry.io/otel/sdk/trace":                              "internal/tracing/tracing.go",
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp": "internal/tracing/tracing.go",
}

// raftImporters are the layers that know raft: one runs it, two store its log. The layers below
// them know timers, and no replication.
var raftImporters = []string{"shard", "shard/raftlog", "shard/record"}

// pure layers work with their arguments alone, so that a simulator can surround them. They import
// no library but those listed here, and no standard package that reaches a file, a socket, a clock
// or another goroutine, except for the listed reason.
var pure = map[string][]string{
	"wheel":               {},
	"shard/events":        {},
	"shard/idle":          {"sync/atomic"}, // what workers leave for who moves the clock
	"shard/retention":     {},
	"shard/silence":       {"time", "sync"}, // durations; frames arrive on other goroutines
	"internal/order":      {},
	"timer/duration":      {"time"}, // its type and its parser
	"internal/secret":     {"sync"}, // pools of hashes
	"timer":               {"github.com/cespare/xxhash/v2", "sync/atomic"},
	"timer/bulk":          {"sync/atomic"}, // counts of shards that are under way at once
	"timer/encoding":      {},
	"timer/recurrence":    {"time", "sync"}, // zones, and a cache of them
	"internal/feature":    {},
	"shard/raftlog":       {"go.etcd.io/raft/v3", "go.etcd.io/raft/v3/raftpb"},
	"shard/record":        {"go.etcd.io/raft/v3/raftpb"},
	"shard/scheduler":     {"time", "sync"}, // durations; its reports and limits are read from other goroutines
	"shard/table":         {"github.com/cespare/xxhash/v2"},
	"shard/table/arena":   {},
	"shard/table/content": {"github.com/cespare/xxhash/v2"},
	"shard/table/index":   {"github.com/cespare/xxhash/v2"},
	"shard/table/slab":    {},
	"shard/wire":          {},

	"internal/delivery": {"time"}, // durations
}

// outside are the packages of the standard library that reach the process's surroundings, each with
// its subpackages.
var outside = []string{"context", "crypto/rand", "database", "io/fs", "log", "net", "os", "path/filepath", "runtime", "sync", "syscall", "time", "unsafe"}

// clockless folders take the time as an argument. In their product code only files named clock.go
// read a clock, and none draws from the process's own randomness. A ticker that only wakes a
// goroutine is allowed.
var clockless = []string{"test/memfs", "timer", "timer/bulk", "timer/encoding", "timer/recurrence", "wheel", "internal/vfs", "wal", "internal/history", "shard", "internal/feature", "shard/events", "shard/halt", "shard/idle", "shard/raftlog", "shard/record", "shard/retention", "shard/scheduler", "shard/silence", "shard/snapshot", "shard/table", "shard/table/arena", "shard/table/content", "shard/table/index", "shard/table/slab", "shard/wire", "ring", "node/feed", "node/member", "node/route", "node/task"}

var clockReaders = map[string][]string{
	"time":         {"Now", "Since", "Until", "Sleep"},
	"math/rand":    {"Int", "Intn", "Int63", "Uint32", "Uint64", "Float64", "Perm", "Shuffle"},
	"math/rand/v2": {"Int", "IntN", "N", "Int64", "Int64N", "Uint32", "Uint64", "Float64", "Perm", "Shuffle"},
}

const module = "carillon/"

// sourceFile is one Go file of this module; its name is relative to the module, with slashes.
type sourceFile struct {
	name   string
	isTest bool
	syntax *ast.File
	fset   *token.FileSet
}

func sources(t *testing.T) []sourceFile {
	t.Helper()
	files, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("found only %d files; the test looks in the wrong place", len(files))
	}
	return files
}

// parsed parses all source files once: it takes most of the time of these tests.
var parsed = sync.OnceValues(func() (files []sourceFile, err error) {
	fset := token.NewFileSet()
	err = filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && skipped(name) {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		syntax, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, sourceFile{filepath.ToSlash(name), strings.HasSuffix(name, "_test.go"), syntax, fset})
		return nil
	})
	return files, err
})

// skipped folders have nothing that we wrote for a reader.
func skipped(folder string) bool {
	base := filepath.Base(folder)
	return folder != "." && (strings.HasPrefix(base, ".") || base == "bin" || base == "testdata" || base == "node_modules")
}

func (f sourceFile) imports() []string {
	var paths []string
	for _, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic(err) // the parser has accepted it
		}
		paths = append(paths, p)
	}
	return paths
}

// layer returns the innermost layer of a file or package. A folder outside all layers is its own.
func layer(name string) string {
	for folder := name; folder != "."; folder = path.Dir(folder) {
		if _, ok := mayImport[folder]; ok {
			return folder
		}
	}
	folder, _, _ := strings.Cut(name, "/")
	return folder
}

// A program that imports the client compiles, and audits, nothing else.
func TestClientImportsStandardLibraryAlone(t *testing.T) {
	for _, f := range sources(t) {
		if layer(f.name) != "client" || f.isTest {
			continue
		}
		for _, p := range f.imports() {
			if p == "carillon/client" { // a folder of the client's own
				continue
			}
			if first, _, _ := strings.Cut(p, "/"); strings.HasPrefix(p, module) || strings.Contains(first, ".") {
				t.Errorf("%s imports %s", f.name, p)
			}
		}
	}
}

// ofTests are what the tests of every layer may use: a file system in memory, measures, bytes that
// look like ours, servers.
var ofTests = []string{"test/memfs", "test/testkit", "test/testkit/growth", "test/sim/forged", "test/freeport", "test/s3server"}

// The rule holds for tests too: if a layer's tests need a higher layer, so does the layer.
func TestImportsPointDown(t *testing.T) {
	for _, f := range sources(t) {
		if !strings.Contains(f.name, "/") {
			continue // this package, which belongs to no layer
		}
		from := layer(f.name)
		allowed, known := mayImport[from]
		if !known {
			t.Errorf("%s: folder %s has no place in the layers; give it one in mayImport and docs/ARCHITECTURE.md", f.name, from)
			continue
		}
		for _, p := range f.imports() {
			ours, ok := strings.CutPrefix(p, module)
			if !ok || f.isTest && slices.Contains(ofTests, ours) {
				continue
			}
			if to := layer(ours); to != from && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s; %s may import only %v", f.name, p, from, allowed)
			}
		}
	}
}

// The file system in memory injects faults; product code that knew of it could behave differently
// there.
func TestProductDoesNotImportMemFS(t *testing.T) {
	for _, f := range sources(t) {
		if !f.isTest && layer(f.name) != "test/sim" && slices.Contains(f.imports(), module+"test/memfs") {
			t.Errorf("%s imports test/memfs, which is for tests and the simulator", f.name)
		}
	}
}

func TestALibraryIsNamedInOneFile(t *testing.T) {
	for _, f := range sources(t) {
		for _, p := range f.imports() {
			if sole := soleImporter[p]; sole != "" && f.name != sole && !f.isTest {
				t.Errorf("%s imports %s, which belongs to %s alone", f.name, p, sole)
			}
		}
	}
}

func TestRaftIsKnownInFewLayers(t *testing.T) {
	for _, f := range sources(t) {
		for _, p := range f.imports() {
			if strings.HasPrefix(p, "go.etcd.io/raft") && !slices.Contains(raftImporters, layer(f.name)) {
				t.Errorf("%s imports %s, which only %v may", f.name, p, raftImporters)
			}
		}
	}
}

func TestPureLayersReachNothingOutside(t *testing.T) {
	reaches := func(p string) bool {
		for _, o := range outside {
			if p == o || strings.HasPrefix(p, o+"/") {
				return true
			}
		}
		return !strings.HasPrefix(p, module) && strings.Contains(strings.Split(p, "/")[0], ".") // a library
	}
	for _, f := range sources(t) {
		allowed, isPure := pure[layer(f.name)]
		if !isPure || f.isTest || strings.Contains(f.name, "/testkit/") {
			continue
		}
		for _, p := range f.imports() {
			if reaches(p) && !slices.Contains(allowed, p) {
				t.Errorf("%s imports %s: %s is to be given what it needs, so that the simulator can give it", f.name, p, layer(f.name))
			}
		}
	}
}

func TestTheCoreReadsNoClock(t *testing.T) {
	for _, f := range sources(t) {
		if f.isTest || !slices.Contains(clockless, layer(f.name)) || path.Base(f.name) == "clock.go" {
			continue
		}
		names := map[string]string{} // local name of an import → its path
		for _, spec := range f.syntax.Imports {
			p, _ := strconv.Unquote(spec.Path.Value)
			local := path.Base(strings.TrimSuffix(p, "/v2"))
			if spec.Name != nil {
				local = spec.Name.Name
			}
			names[local] = p
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := selector.X.(*ast.Ident); ok && slices.Contains(clockReaders[names[x.Name]], selector.Sel.Name) {
				t.Errorf("%s: %s.%s; take the time or the random source as an argument, or keep it in clock.go",
					f.fset.Position(n.Pos()), x.Name, selector.Sel.Name)
			}
			return true
		})
	}
}

// TestZonesComeFromTheRelease: nobody takes time zones from the machine. Those of timer/recurrence
// are the same on all nodes of a release.
func TestZonesComeFromTheRelease(t *testing.T) {
	for _, f := range sources(t) {
		if slices.Contains(f.imports(), "time/tzdata") {
			t.Errorf("%s imports time/tzdata; timer/recurrence has the zones", f.name)
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok && selector.Sel.Name == "LoadLocation" {
				t.Errorf("%s: a zone of the machine; take it from timer/recurrence", f.fset.Position(n.Pos()))
			}
			return true
		})
	}
}

// A test waits for a signal or uses a fake clock: a sleep is either too short on a busy machine or
// too long on an idle one.
func TestNoTestSleeps(t *testing.T) {
	for _, f := range sources(t) {
		if !f.isTest || slices.Contains(f.imports(), "testing/synctest") { // there a sleep only moves the fake clock
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok && selector.Sel.Name == "Sleep" {
				if x, ok := selector.X.(*ast.Ident); ok && x.Name == "time" {
					t.Errorf("%s: time.Sleep in a test", f.fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
}
