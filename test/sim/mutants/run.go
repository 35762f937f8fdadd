package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
)

// testLimit ends a test that hangs. A hang proves nothing: a test must report the mutant.
const testLimit = 20 * time.Minute

// job is one test of one mutant, or of the code as it is.
type job struct {
	mutant *mutant // nil: none, and the test must pass
	test   testLine
}

// verdict is the result of a job.
type verdict struct {
	job
	ok   bool
	seed string // the simulator's seed that found it; empty: another kind of test
	said string
	took time.Duration
}

// runner builds and runs tests of mutants, each in a process of its own.
type runner struct {
	root, tmp string
	sources   *sources
	flags     []string     // of each test of the simulator, behind its own
	processor atomic.Int64 // nanoseconds of all that ran: on a busy machine the time that passes says little
}

// count adds the processor's time of a command that has ended.
func (r *runner) count(cmd *exec.Cmd) {
	if p := cmd.ProcessState; p != nil {
		r.processor.Add(int64(p.UserTime() + p.SystemTime()))
	}
}

func (r *runner) run(ctx context.Context, j job) verdict {
	took := stopwatch()
	v := verdict{job: j}
	out, failed, err := r.try(ctx, j)
	v.took = took()
	switch {
	case err != nil:
		v.said = err.Error()
	case strings.Contains(out, "no tests to run"):
		v.said = "there is no such test"
	case strings.Contains(out, "panic: test timed out"):
		v.said = "undecided: the test hung"
	case j.mutant == nil:
		if v.ok = !failed; failed {
			v.said = "fails without any mutant: " + message(out)
		}
	case !failed:
		v.said = "NOT FOUND"
	case j.mutant.expect != nil && !j.mutant.expect.MatchString(out):
		v.said = fmt.Sprintf("found by something else than %q: %s", j.mutant.expect, message(out))
	default:
		v.ok, v.said = true, message(out)
		if m := foundBySeed.FindStringSubmatch(out); m != nil {
			v.seed = m[1]
		}
	}
	return v
}

// try builds a test binary and runs it. An error is one of the attempt, not of the test.
func (r *runner) try(ctx context.Context, j job) (out string, failed bool, err error) {
	name := "none"
	if j.mutant != nil {
		name = j.mutant.name
	}
	dir, err := os.MkdirTemp(r.tmp, name+"-")
	if err != nil {
		return "", false, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is below a temporary folder, which goes too
	var env []string
	if j.mutant != nil {
		overlay, err := r.overlay(dir, j.mutant)
		if err != nil {
			return "", false, err
		}
		env = append(env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	binary := filepath.Join(dir, "test")
	// By its import path: the client is in a module of its own.
	build := goCommand(r.root, env, "test", "-c", "-p", "1", "-ldflags=-w", "-o", binary, "carillon/"+strings.TrimPrefix(j.test.pkg, "./"))
	b, err := build.CombinedOutput()
	r.count(build)
	if err != nil {
		return "", false, fmt.Errorf("it does not build: %w\n%s", err, b)
	}
	args := append([]string{"-test.v", "-test.timeout", testLimit.String(), "-test.run", j.test.run}, j.test.flags...)
	if j.test.pkg == "./test/sim" {
		args = append(args, r.flags...)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	// One processor: as many tests run at a time as there are. A test that builds the product has
	// the overlay too.
	cmd.Dir, cmd.Env = filepath.Join(r.root, j.test.pkg), append(append(os.Environ(), env...), "GOMAXPROCS=1")
	b, err = cmd.CombinedOutput()
	r.count(cmd)
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || ctx.Err() != nil) {
		return "", false, errors.Join(err, ctx.Err())
	}
	return string(b), err != nil, nil
}

// overlay writes the changed files, and the list of them as the go command takes it.
func (r *runner) overlay(dir string, m *mutant) (string, error) {
	changed, err := r.sources.mutate(m)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, source := range changed {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		if err := os.WriteFile(file, source, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(r.root, filepath.FromSlash(path.Clean(name)))] = file
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, b, 0o600)
}

var (
	foundBySeed = regexp.MustCompile(`seed (\d+), after `)
	seedsFailed = regexp.MustCompile(`failed: \d+ of \d+ seeds`)
	saidAtLine  = regexp.MustCompile(`(?m)^\s+\w+_test\.go:\d+: (.*)$`)
	panicked    = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*)$`)
	seedSays    = regexp.MustCompile(`seed \d+, after .*`)
)

// message is the line of a failed test that says why.
func message(out string) string {
	line := strings.TrimSpace(out)
	for _, pattern := range []*regexp.Regexp{seedSays, panicked, saidAtLine} {
		if all := pattern.FindAllString(out, -1); len(all) > 0 {
			if line = all[0]; pattern == saidAtLine {
				line = all[len(all)-1] // those before it may be notes
			}
			break
		}
	}
	line = strings.Join(strings.Fields(line), " ")
	if len(line) > 200 {
		line = line[:200] + " …"
	}
	if share := seedsFailed.FindString(out); share != "" {
		line = share + ": " + line
	}
	return line
}
