package e2e

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"carillon/test/freeport"
)

// guide is a page of docs/guides as far as it can be run. Its fenced blocks are: console, commands
// for other terminals; sh, commands for one shell; text, the output of the sh block before it;
// "text sink", the receiver's output; and go, ts and python, parts of a program in that language.
// In an output … stands for anything.
type guide struct {
	console  []string
	blocks   []guideBlock
	sink     []string            // each with its own order of lines
	programs map[string][]string // parts by language
}

type guideBlock struct{ sh, want string }

var fence = regexp.MustCompile("(?ms)^```([a-z]*(?: sink)?)\n(.*?)^```$")

func readGuide(t *testing.T, name string) (g guide) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	g.programs = map[string][]string{}
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		switch kind, body := m[1], m[2]; kind {
		case "console":
			g.console = append(g.console, strings.Split(strings.TrimSpace(body), "\n")...)
		case "sh":
			g.blocks = append(g.blocks, guideBlock{sh: body})
		case "text":
			g.blocks[len(g.blocks)-1].want = body
		case "go", "ts", "python":
			g.programs[kind] = append(g.programs[kind], body)
		case "text sink":
			g.sink = append(g.sink, body)
		default:
			t.Fatalf("%s has a block of kind %q", name, kind)
		}
	}
	return g
}

// shows reports whether output has the lines of want in order; … matches anything within a line.
func shows(output, want string) bool {
	lines := strings.Split(output, "\n")
	for line := range strings.Lines(want) {
		parts := strings.Split(strings.TrimRight(line, "\n"), "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern := regexp.MustCompile(strings.Join(parts, ".*"))
		at := -1
		for i := range lines {
			if pattern.MatchString(lines[i]) {
				at = i
				break
			}
		}
		if at < 0 {
			return false
		}
		lines = lines[at+1:]
	}
	return true
}

// notYet matches refusals of requests that this version does not support.
var notYet = regexp.MustCompile(`comes in a later version|"there is nothing at this path"`)

// TestGuides runs each guide as printed, with other addresses. It skips a guide whose first request
// this version does not support.
func TestGuides(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("../../docs/guides/*.md")
	if err != nil || len(names) < 7 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		base := strings.TrimSuffix(filepath.Base(name), ".md")
		if base == "README" {
			continue
		}
		t.Run(base, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && base != "order-timeout" {
				t.Skip("long: make ci runs it")
			}
			var addresses []string
			if source := guideSources[base]; source != nil {
				addresses = source(t)
			}
			readGuide(t, name).run(t, addresses...)
		})
	}
}

// run takes pairs of addresses, the page's and the real one, that it adds those of its own to.
func (g guide) run(t *testing.T, addresses ...string) {
	node := serve(t, t.TempDir(), append(g.serveFlags(), "--shards", "4")...)
	addresses = append(addresses, "127.0.0.1:7700", strings.TrimPrefix(node.url, "http://"))
	var sink *process
	for _, line := range g.console {
		program, rest, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(line, "carillon serve"):
		case strings.HasPrefix(line, "carillon sink"):
			address := freeport.Address(t)
			addresses = append(addresses, "127.0.0.1:7780", address)
			sink = begin(t, append([]string{binary, "sink", "--listen", address}, strings.Fields(line)[2:]...))
			awaitListener(t, address)
		case program == "go":
			folder, flags, _ := strings.Cut(strings.TrimPrefix(rest, "run "), " ")
			address := freeport.Address(t)
			addresses = append(addresses, "127.0.0.1:7790", address)
			begin(t, append([]string{build(t, folder)}, strings.Fields(strings.NewReplacer(addresses...).Replace(flags))...))
			awaitListener(t, address)
		default:
			t.Fatalf("the guide starts %q, which this test does not know", line)
		}
	}
	printed, failed := shell(t, g, strings.NewReplacer(addresses...))
	g.check(t, printed, failed)
	g.awaitCalls(t, sink)
}

// serveFlags are the flags of the guide's node, but for its directory.
func (g guide) serveFlags() (flags []string) {
	for _, line := range g.console {
		if rest, is := strings.CutPrefix(line, "carillon serve"); is {
			rest, _, _ = strings.Cut(rest, "--data")
			flags = strings.Fields(rest)
		}
	}
	return flags
}

// awaitCalls waits until the receiver has printed all that the guide shows.
func (g guide) awaitCalls(t *testing.T, sink *process) {
	t.Helper()
	for _, want := range g.sink {
		deadline := time.Now().Add(guideLimit)
		for !shows(sink.stdout.String(), want) {
			if time.Now().After(deadline) {
				t.Fatalf("the receiver printed\n%s\nwant\n%s", sink.stdout.String(), want)
			}
			<-time.After(20 * time.Millisecond)
		}
	}
}

// guideLimit is far more than starting a program or receiving a call takes, because the machine may
// be busy.
const guideLimit = patience

const blockMark = "== block ==\n"

// shell runs all blocks in one shell, up to the first that fails, and returns their outputs.
func shell(t *testing.T, g guide, addresses *strings.Replacer) (printed []string, failed error) {
	t.Helper()
	var script strings.Builder
	script.WriteString("set -eo pipefail\n")
	for _, b := range g.blocks {
		script.WriteString("printf '" + strings.ReplaceAll(blockMark, "\n", `\n`) + "'\n" + addresses.Replace(b.sh))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script.String())
	var out bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = append(cleanEnv(), "PATH="+onPath(t)+":"+os.Getenv("PATH"), "CARILLON_URL="+addresses.Replace("http://127.0.0.1:7700")), "../..", &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	failed = cmd.Run()
	return strings.Split(out.String(), blockMark)[1:], failed
}

func (g guide) check(t *testing.T, printed []string, failed error) {
	t.Helper()
	if failed != nil && len(printed) == 1 && notYet.MatchString(printed[0]) {
		t.Skipf("this version does not do it yet: %s", strings.TrimSpace(printed[0]))
	}
	for i, got := range printed {
		if !shows(got, g.blocks[i].want) {
			t.Errorf("block %d:\n%s\nprinted\n%s\nwant\n%s", i+1, g.blocks[i].sh, got, g.blocks[i].want)
		}
	}
	if failed != nil {
		t.Fatalf("block %d of %d failed (%v):\n%s", len(printed), len(g.blocks), failed, printed[len(printed)-1])
	}
}

// onPath returns a directory that has the binary under the name carillon.
func onPath(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(dir, "carillon")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// build builds a program of the guides.
func build(t *testing.T, folder string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-o", program, folder)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s does not build: %v\n%s", folder, err, out)
	}
	return program
}

func awaitListener(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(guideLimit); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return
		}
	}
	t.Fatalf("nobody listens at %s", address)
}

// TestShows: output that differs from a guide's page must not pass.
func TestShows(t *testing.T) {
	for _, c := range []struct {
		output, want string
		ok           bool
	}{
		{"a\nb\nc\n", "a\nc\n", true}, {"a\nb\n", "b\na\n", false}, {`{"x":1,"y":2}`, `{"x":1…2}`, true}, {`{"x":1}`, `{"x".1}`, false}, {"", "a\n", false}, {"a", "", true},
	} {
		if shows(c.output, c.want) != c.ok {
			t.Errorf("%q in %q: %v", c.want, c.output, !c.ok)
		}
	}
}
