package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// checker type-checks mutated packages. It is a compiler's front half: seconds for all mutants,
// where building each takes minutes.
type checker struct {
	root     string
	module   string
	sources  *sources
	packages map[string]*listed // by import path
}

// listed is a package as `go list` knows it.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// newChecker has the go command compile the imports of the mutated packages.
func newChecker(root string, s *sources, mutants []mutant) (*checker, error) {
	module, err := goCommand(root, nil, "list", "-m").Output()
	if err != nil {
		return nil, fmt.Errorf("go list -m: %w", said(err))
	}
	c := &checker{root: root, module: strings.TrimSpace(string(module)), sources: s, packages: map[string]*listed{}}
	folders := map[string]bool{}
	for i := range mutants {
		for _, h := range mutants[i].hunks {
			if p, err := s.find(h); err == nil { // check tells who is nowhere
				folders[path.Join(c.module, path.Dir(p.file.name))] = true
			}
		}
	}
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}
	for folder := range folders {
		args = append(args, folder)
	}
	slices.Sort(args[4:])
	out, err := goCommand(root, nil, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", said(err))
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		c.packages[p.ImportPath] = &p
	}
	return c, nil
}

// check says which mutants no longer apply or compile.
func (c *checker) check(mutants []mutant) error {
	errs := make([]error, len(mutants))
	next := make(chan int)
	var group sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			w := checkWorker{checker: c, fset: token.NewFileSet(), parsed: map[string]*ast.File{}}
			w.imports = importer.ForCompiler(w.fset, "gc", func(path string) (io.ReadCloser, error) {
				p := c.packages[path]
				if p == nil || p.Export == "" {
					return nil, fmt.Errorf("no export data of %s", path)
				}
				return os.Open(p.Export)
			})
			for i := range next {
				errs[i] = w.check(&mutants[i])
			}
		})
	}
	for i := range mutants {
		next <- i
	}
	close(next)
	group.Wait()
	return errors.Join(errs...)
}

// checkWorker has a file set and an importer of its own: neither may be shared.
type checkWorker struct {
	*checker
	fset    *token.FileSet
	imports types.Importer
	parsed  map[string]*ast.File // files as they are
}

func (w *checkWorker) check(m *mutant) error {
	changed, err := w.sources.mutate(m)
	if err != nil {
		return err
	}
	folders := map[string]bool{}
	for name := range changed {
		folders[path.Dir(name)] = true
	}
	for folder := range folders {
		p := w.packages[path.Join(w.module, folder)]
		if p == nil {
			return fmt.Errorf("%s: no package in %s", m.name, folder)
		}
		var files []*ast.File
		for name, source := range changed {
			if path.Dir(name) != folder {
				continue
			}
			file, err := parser.ParseFile(w.fset, name, source, parser.SkipObjectResolution)
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			files = append(files, file)
		}
		for _, base := range p.GoFiles {
			name := path.Join(folder, base)
			if changed[name] != nil {
				continue
			}
			if w.parsed[name] == nil {
				file, err := parser.ParseFile(w.fset, filepath.Join(w.root, name), nil, parser.SkipObjectResolution)
				if err != nil {
					return err
				}
				w.parsed[name] = file
			}
			files = append(files, w.parsed[name])
		}
		if _, err := (&types.Config{Importer: w.imports}).Check(p.ImportPath, w.fset, files, nil); err != nil {
			return fmt.Errorf("%s does not compile: %w", m.name, err)
		}
	}
	return nil
}

// goCommand is the go command in the module, with more in its environment.
func goCommand(root string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	return cmd
}

// said is an error with the output of its command.
func said(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}
