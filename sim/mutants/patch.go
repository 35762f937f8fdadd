package main

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"
)

// filePatch is the part of a patch for one file.
type filePatch struct {
	name    string // from the root of the module, with slashes
	creates bool   // the file is new
	hunks   []hunk
}

// hunk replaces some lines by others. Context lines are in both.
type hunk struct {
	line     int // of the patch, for messages
	old, new []string
}

var errPatch = errors.New("not a patch")

// parsePatch reads a unified diff. Line numbers in it mean nothing: apply goes by the text alone.
func parsePatch(text string) ([]filePatch, error) {
	var files []filePatch
	creates := false
	for i, line := range strings.Split(text, "\n") {
		var h *hunk
		if n := len(files); n > 0 && len(files[n-1].hunks) > 0 {
			h = &files[n-1].hunks[len(files[n-1].hunks)-1]
		}
		from, isFrom := strings.CutPrefix(line, "--- ")
		to, isTo := strings.CutPrefix(line, "+++ ")
		switch {
		case isFrom:
			creates = from == "/dev/null"
		case isTo:
			_, name, ok := strings.Cut(to, "/")
			if !ok || path.Clean(name) != name || strings.HasPrefix(name, "..") {
				return nil, fmt.Errorf("%w: line %d: %q is no file of the module", errPatch, i+1, to)
			}
			files = append(files, filePatch{name: name, creates: creates})
		case strings.HasPrefix(line, "@@ "):
			if len(files) == 0 {
				return nil, fmt.Errorf("%w: line %d: a hunk of no file", errPatch, i+1)
			}
			f := &files[len(files)-1]
			f.hunks = append(f.hunks, hunk{line: i + 1})
		case line == "", strings.HasPrefix(line, "diff --git "), strings.HasPrefix(line, "index "), strings.HasPrefix(line, "new file mode "):
			// Between files, and at the end. An empty line of context begins with a blank.
		case h == nil:
			return nil, fmt.Errorf("%w: line %d: %q", errPatch, i+1, line)
		case line[0] == ' ':
			h.old, h.new = append(h.old, line[1:]), append(h.new, line[1:])
		case line[0] == '-':
			h.old = append(h.old, line[1:])
		case line[0] == '+':
			h.new = append(h.new, line[1:])
		default:
			return nil, fmt.Errorf("%w: line %d: %q", errPatch, i+1, line)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: it changes no file", errPatch)
	}
	return files, nil
}

// apply gives the file as the patch makes it. Each hunk must fit in exactly one place behind the
// one before it: a patch that could mean two things may plant another bug than the one it
// describes.
func (f *filePatch) apply(source []byte) ([]byte, error) {
	if len(f.hunks) == 0 {
		return nil, fmt.Errorf("%s: %w: no hunk", f.name, errPatch)
	}
	var out bytes.Buffer
	lines, at := strings.Split(string(source), "\n"), 0
	for _, h := range f.hunks {
		if len(h.old) == 0 && !f.creates {
			return nil, fmt.Errorf("%s: %w: line %d: a hunk without context", f.name, errPatch, h.line)
		}
		var found []int
		for i := at; i+len(h.old) <= len(lines); i++ {
			if equal(lines[i:i+len(h.old)], h.old) {
				found = append(found, i)
			}
			if f.creates {
				break
			}
		}
		switch {
		case len(found) == 0:
			return nil, fmt.Errorf("%s: the hunk at line %d no longer applies: make the patch anew", f.name, h.line)
		case len(found) > 1:
			return nil, fmt.Errorf("%s: the hunk at line %d fits in %d places: give it more context", f.name, h.line, len(found))
		}
		for _, line := range append(lines[at:found[0]:found[0]], h.new...) {
			out.WriteString(line + "\n")
		}
		at = found[0] + len(h.old)
	}
	out.WriteString(strings.Join(lines[at:], "\n"))
	if bytes.Equal(out.Bytes(), source) {
		return nil, fmt.Errorf("%s: %w: it changes nothing", f.name, errPatch)
	}
	return out.Bytes(), nil
}

func equal(a, b []string) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
