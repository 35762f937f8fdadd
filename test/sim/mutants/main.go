// Command mutants proves that the tests find bugs: the *.txt files in this folder have deliberate
// ones, and the tests that each names must fail with it, and pass without it. README.md says how to
// write one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

var (
	flagRun      = flag.String("run", "", "of the mutants, those whose names match this regular expression")
	flagParallel = flag.Int("parallel", runtime.NumCPU(), "how many tests run at a time")
	flagAll      = flag.Bool("all", false, "have the simulator run all seeds, to see how many find each")
	flagWithout  = flag.Bool("without", true, "run the tests without mutants too")
	flagTable    = flag.Bool("table", false, "write the table of mutants into docs/testing.md, and run none")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	only, err := regexp.Compile(*flagRun)
	if err != nil {
		return err
	}
	root, err := goCommand("", nil, "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return said(err)
	}
	r := &runner{root: strings.TrimSpace(string(root))}
	mutants, err := load(filepath.Join(r.root, "test", "sim", "mutants"))
	if err != nil {
		return err
	}
	if *flagTable {
		return writeTable(filepath.Join(r.root, "docs", "testing.md"), mutants)
	}
	mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return !only.MatchString(m.name) })
	if len(mutants) == 0 {
		return fmt.Errorf("none is named like %q", *flagRun)
	}
	names, err := productFiles(r.root)
	if err != nil {
		return err
	}
	if r.sources, err = readSources(r.root, names); err != nil {
		return err
	}
	c, err := newChecker(r.root, r.sources, mutants)
	if err != nil {
		return err
	}
	if err := c.check(mutants); err != nil {
		return err
	}
	if r.tmp, err = os.MkdirTemp("", "mutants-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.tmp) //nolint:errcheck // a temporary folder
	if *flagAll {
		r.flags = []string{"-sim.all"}
	}
	return r.runAll(ctx, jobs(mutants))
}

// jobs are the tests without mutants, which take longest, and each mutant's tests.
func jobs(mutants []mutant) []job {
	var plain, list []job
	for i := range mutants {
		for _, t := range mutants[i].tests {
			list = append(list, job{&mutants[i], t})
			if *flagWithout {
				plain = withPlain(plain, t)
			}
		}
	}
	return append(plain, list...)
}

// withPlain adds a test to those that run without a mutant: one job for all tests of a package, but
// for those with flags of their own.
func withPlain(list []job, t testLine) []job {
	for i := range list {
		l := &list[i].test
		switch {
		case l.pkg != t.pkg || !slices.Equal(l.flags, t.flags):
		case slices.Contains(strings.Split(l.run, "|"), t.run):
			return list
		default:
			l.run += "|" + t.run
			return list
		}
	}
	return append(list, job{nil, t})
}

func (r *runner) runAll(ctx context.Context, list []job) error {
	took := stopwatch()
	next, verdicts := make(chan job), make(chan verdict)
	var group sync.WaitGroup
	for range min(*flagParallel, len(list)) {
		group.Go(func() {
			for j := range next {
				verdicts <- r.run(ctx, j)
			}
		})
	}
	go func() {
		for _, j := range list {
			if ctx.Err() != nil {
				break
			}
			next <- j
		}
		close(next)
		group.Wait()
		close(verdicts)
	}()
	var bad []string
	found := 0
	fmt.Printf("%-7s %-36s %-28s %7s  %s\n", "", "mutant", "protects", "seconds", "killed by")
	for v := range verdicts {
		if ctx.Err() != nil {
			continue // it was interrupted
		}
		name, protects, result := "(no mutant)", "", "passes"
		if v.mutant != nil {
			name, protects, result = v.mutant.name, v.mutant.protects, "found"
		}
		switch {
		case !v.ok:
			result = "FAILED"
			bad = append(bad, name+", "+v.test.String())
		case v.mutant != nil:
			found++
		}
		fmt.Printf("%-7s %-36s %-28s %7.0f  %s: %s\n", result, name, protects, v.took.Seconds(), v.test, v.said)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	fmt.Printf("%d tests found their mutants, %d did not do as they must; %.0f s, %.0f s of processor\n",
		found, len(bad), took().Seconds(), time.Duration(r.processor.Load()).Seconds())
	if len(bad) > 0 {
		return fmt.Errorf("not as they must be:\n  %s", strings.Join(bad, "\n  "))
	}
	return nil
}
