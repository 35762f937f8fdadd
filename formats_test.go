package carillon_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPeerPageHasAllMessages: docs/formats/peer.md has each method and each control frame by its
// number, and no other.
func TestPeerPageHasAllMessages(t *testing.T) {
	method, frame := regexp.MustCompile(`^method[A-Z]`), regexp.MustCompile(`^[a-z][A-Za-z]*Frame$`)
	var methods, frames []int
	for _, f := range sources(t) {
		if f.isTest || !strings.HasPrefix(f.name, "node/") {
			continue
		}
		for name, n := range numbersOf(f.syntax) {
			switch {
			case method.MatchString(name):
				methods = append(methods, n)
			case frame.MatchString(name):
				frames = append(frames, n)
			}
		}
	}
	page := read(t, "docs/formats/peer.md")
	_, calls, _ := strings.Cut(page, "\n## Calls\n")
	calls, _, _ = strings.Cut(calls, "\n## ")
	var onPage []int
	for _, row := range regexp.MustCompile(`(?m)^\| ([\d, ]+) \|`).FindAllStringSubmatch(calls, -1) {
		for number := range strings.SplitSeq(row[1], ", ") {
			n, _ := strconv.Atoi(number)
			onPage = append(onPage, n)
		}
	}
	var framesOnPage []int
	for _, m := range regexp.MustCompile(`(?m)^\* \*\*0x([0-9A-F]{2}),`).FindAllStringSubmatch(page, -1) {
		n, _ := strconv.ParseInt(m[1], 16, 32)
		framesOnPage = append(framesOnPage, int(n))
	}
	for _, list := range [][]int{methods, onPage, frames, framesOnPage} {
		slices.Sort(list)
	}
	if len(methods) < 20 || !slices.Equal(methods, onPage) {
		t.Errorf("the methods are %v, the page has %v", methods, onPage)
	}
	if len(frames) < 4 || !slices.Equal(frames, framesOnPage) {
		t.Errorf("control frames begin with %#x, the page has %#x", frames, framesOnPage)
	}
}

// numbersOf are the constants of a file that are a number, iota, or the sum of both.
func numbersOf(file *ast.File) map[string]int {
	out := map[string]int{}
	for _, d := range file.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		var last []ast.Expr
		for iota, spec := range group.Specs {
			s := spec.(*ast.ValueSpec)
			if s.Values != nil {
				last = s.Values
			}
			for i, name := range s.Names {
				if i < len(last) {
					if n, ok := constantNumber(last[i], iota); ok {
						out[name.Name] = n
					}
				}
			}
		}
	}
	return out
}

func constantNumber(e ast.Expr, iota int) (int, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		n, err := strconv.ParseInt(e.Value, 0, 32)
		return int(n), err == nil
	case *ast.Ident:
		return iota, e.Name == "iota"
	case *ast.BinaryExpr:
		x, okX := constantNumber(e.X, iota)
		y, okY := constantNumber(e.Y, iota)
		return x + y, okX && okY && e.Op == token.ADD
	}
	return 0, false
}
