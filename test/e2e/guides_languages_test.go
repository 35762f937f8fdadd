package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"carillon/test/freeport"
)

// guideProgram is the program that a guide's blocks of one language make, with addresses of its
// own.
type guideProgram struct {
	name      string // of the page
	guide     guide
	parts     []string
	http      string // addresses of the node, of the sink, and of the program if it is a receiver
	sink      string
	addresses *strings.Replacer
}

// TestGuidesInEachLanguage runs the programs of the guides as printed, with other addresses. Each
// page has as many parts in one language as in the others.
func TestGuidesInEachLanguage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind  string
		need  func(*testing.T)
		build func(t *testing.T, programs []guideProgram) func(guideProgram) []string // the commands that run them
	}{
		{"go", notShort, buildGoGuides}, {"ts", needTypeScript, buildTypeScriptGuides}, {"python", needPython, buildPythonGuides},
	} {
		t.Run(c.kind, func(t *testing.T) {
			c.need(t)
			t.Parallel()
			programs := guidePrograms(t, c.kind)
			command := c.build(t, programs)
			for _, p := range programs {
				t.Run(p.name, func(t *testing.T) {
					begin(t, slices.Concat([]string{binary}, serveArgs(t.TempDir(), p.http), p.guide.serveFlags())).awaitReady(t)
					var sink *process
					for _, line := range p.guide.console {
						if flags, is := strings.CutPrefix(line, "carillon sink"); is {
							sink = begin(t, append([]string{binary, "sink", "--listen", p.sink}, strings.Fields(flags)...))
							awaitListener(t, p.sink)
						}
					}
					printed := inFolder(t, ".", []string{"PYTHONPATH=" + python + "/src", "PYTHONDONTWRITEBYTECODE=1"}, command(p)...)
					for _, part := range p.parts {
						p.checkPrinted(t, part, printed)
					}
					p.guide.awaitCalls(t, sink)
				})
			}
		})
	}
}

// printedLine matches a line that prints something with the output in a comment.
var printedLine = regexp.MustCompile(`(?m)^.*[Pp]rint.*\)  ?(?://|#) (.*)$|^.*console\.log.*; // (.*)$`)

// checkPrinted compares what a part should print, if the guide shows it exactly.
func (p guideProgram) checkPrinted(t *testing.T, part, printed string) {
	t.Helper()
	for _, m := range printedLine.FindAllStringSubmatch(part, -1) {
		if want := m[1] + m[2]; !strings.HasPrefix(want, "the ") && !strings.Contains(printed, want+"\n") {
			t.Errorf("it printed\n%s\nwithout %q", printed, want)
		}
	}
}

func guidePrograms(t *testing.T, kind string) (programs []guideProgram) {
	t.Helper()
	names, err := filepath.Glob("../../docs/guides/*.md")
	if err != nil {
		t.Fatal(err)
	}
	first := readGuide(t, "../../docs/guides/README.md").programs[kind]
	for _, name := range names {
		p := guideProgram{name: strings.TrimSuffix(filepath.Base(name), ".md"), guide: readGuide(t, name)}
		if p.name == "README" || len(p.guide.programs) == 0 {
			continue
		}
		for other, parts := range p.guide.programs {
			if len(parts) != len(p.guide.programs[kind]) {
				t.Errorf("%s has %d parts in %s and %d in %s", name, len(parts), other, len(p.guide.programs[kind]), kind)
			}
		}
		p.http, p.sink = freeport.Address(t), freeport.Address(t)
		own := freeport.Address(t)
		_, port, _ := strings.Cut(own, ":")
		p.addresses = strings.NewReplacer("127.0.0.1:7700", p.http, "127.0.0.1:7780", p.sink, "127.0.0.1:7790", own, "7790", port)
		for _, part := range append(first[:1:1], p.guide.programs[kind]...) {
			p.parts = append(p.parts, p.addresses.Replace(part))
		}
		programs = append(programs, p)
	}
	if len(programs) < 7 || len(first) != 1 {
		t.Fatalf("%d programs in %s, %d beginnings", len(programs), kind, len(first))
	}
	return programs
}

// buildGoGuides makes one program of all: building is slow.
func buildGoGuides(t *testing.T, programs []guideProgram) func(guideProgram) []string {
	dir := t.TempDir()
	var text strings.Builder
	text.WriteString(`package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"carillon/client"
)

var (
	_ = json.Marshal
	_ = errors.Is
	_ = fmt.Sprint
	_ = http.Serve
	_ = time.Now
)

func main() { map[string]func(){
`)
	for i := range programs {
		fmt.Fprintf(&text, "%q: program%d,\n", programs[i].name, i)
	}
	text.WriteString("}[os.Args[1]]() }\n")
	for i, p := range programs {
		check := "if err != nil { log.Fatal(err) }\n"
		fmt.Fprintf(&text, "func program%d() {\n%s%s}\n", i, strings.Join(p.parts, check), check)
	}
	client, err := filepath.Abs("../../client")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "main.go"), text.String())
	writeFile(t, filepath.Join(dir, "go.mod"), "module guides\n\ngo 1.26.0\n\nrequire carillon/client v0.0.0\n\nreplace carillon/client => "+client+"\n")
	inFolder(t, dir, nil, "go", "build", "-o", "guides", ".")
	return func(p guideProgram) []string { return []string{filepath.Join(dir, "guides"), p.name} }
}

func buildTypeScriptGuides(t *testing.T, programs []guideProgram) func(guideProgram) []string {
	dir := t.TempDir()
	root, err := filepath.Abs(typescript)
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, "node_modules"), 0o700)
	}
	if err == nil {
		err = os.Symlink(root, filepath.Join(dir, "node_modules", "carillon-client"))
	}
	if err != nil {
		t.Fatal(err)
	}
	compile := []string{"node", root + "/node_modules/typescript/bin/tsc", "--strict", "--target", "es2022", "--module", "nodenext",
		"--types", "node", "--typeRoots", root + "/node_modules/@types", "--outDir", "made"}
	const head = `import { createServer } from "node:http";
import { setTimeout } from "node:timers/promises";
`
	for _, p := range programs {
		writeFile(t, filepath.Join(dir, p.name+".mts"), head+strings.Join(p.parts, "\n"))
		compile = append(compile, p.name+".mts")
	}
	inFolder(t, dir, nil, compile...)
	return func(p guideProgram) []string { return []string{"node", filepath.Join(dir, "made", p.name+".mjs")} }
}

func buildPythonGuides(t *testing.T, programs []guideProgram) func(guideProgram) []string {
	dir := t.TempDir()
	const head = `import threading
import time
from datetime import datetime, timedelta, timezone
from wsgiref.simple_server import make_server
`
	file := func(p guideProgram) string { return filepath.Join(dir, strings.ReplaceAll(p.name, "-", "_")+".py") }
	check := []string{"mypy", "--cache-dir", t.TempDir()}
	for _, p := range programs {
		writeFile(t, file(p), head+strings.Join(p.parts, "\n"))
		check = append(check, file(p))
	}
	if _, err := exec.LookPath("mypy"); err != nil {
		t.Log("NOT CHECKED: the types of the guides in Python: mypy is not installed")
	} else {
		inFolder(t, python+"/src", nil, check...)
	}
	return func(p guideProgram) []string { return []string{"python3", file(p)} }
}
