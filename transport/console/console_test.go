package console

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestVendoredFiles: the libraries are as their authors published them.
func TestVendoredFiles(t *testing.T) {
	list, err := os.ReadFile("vendor.sha256")
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		sums[f[1]] = f[0]
	}
	entries, err := fs.ReadDir(static, "static/vendor")
	if err != nil || len(entries) != len(sums) {
		t.Errorf("%d files, %d sums: %v", len(entries), len(sums), err)
	}
	for _, e := range entries {
		body, err := static.ReadFile("static/vendor/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) != sums[e.Name()] {
			t.Errorf("%s is not the file of vendor.sha256", e.Name())
		}
	}
}

// TestEveryFileIsKnown: each has a type, and a tag of its own.
func TestEveryFileIsKnown(t *testing.T) {
	s := New()
	tags := map[string]string{}
	for path, f := range s.files {
		if f.Type == "" || len(f.Body) == 0 || path != "/" && tags[f.ETag] != "" && path != "/console/index.html" && tags[f.ETag] != "/" {
			t.Errorf("%s: type %q, %d bytes, tag %s", path, f.Type, len(f.Body), f.ETag)
		}
		tags[f.ETag] = path
	}
	if s.File("/") == nil || s.File("/console/js/app.js") == nil || s.File("/console/nothing") != nil || (*Site)(nil).File("/") != nil {
		t.Error("the page is not where it belongs")
	}
}

var (
	imported = regexp.MustCompile(`(?:from|import) "([^"]+)"`)
	named    = regexp.MustCompile(`(?:src|href)="(/[^"]*)"`)
	inline   = regexp.MustCompile(`(?i)<script>|<style|\sstyle=|\son[a-z]+="|javascript:|\beval\(|new Function|innerHTML|dangerouslySetInnerHTML|document\.write`)
	foreign  = regexp.MustCompile(`(?:src|href|url\()=?["']?(?:https?:)?//`)
)

// TestFilesKeepThePolicy: each file that they name is there, comes from this node, and is not
// forbidden by the policy.
func TestFilesKeepThePolicy(t *testing.T) {
	s := New()
	for path, f := range s.files {
		if strings.HasPrefix(path, "/console/vendor/") {
			continue
		}
		text := string(f.Body)
		for _, bad := range []*regexp.Regexp{inline, foreign} {
			if found := bad.FindString(text); found != "" {
				t.Errorf("%s has %q", path, found)
			}
		}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if s.File(m[1]) == nil {
				t.Errorf("%s names %s, which is not there", path, m[1])
			}
		}
		for _, m := range imported.FindAllStringSubmatch(text, -1) {
			name := m[1]
			if rest, ok := strings.CutPrefix(name, "./"); ok {
				name = "/console/js/" + rest
			}
			if s.File(name) == nil {
				t.Errorf("%s imports %s, which is not there", path, m[1])
			}
		}
	}
	if strings.Contains(Policy, "unsafe") || !strings.Contains(Policy, "frame-ancestors 'none'") {
		t.Error(Policy)
	}
}

// TestTextsAreNoMarkup: the page shows what users wrote through preact, which makes text of it; no
// file makes markup, a program or a link of another scheme of a text.
func TestTextsAreNoMarkup(t *testing.T) {
	maker := regexp.MustCompile(`(?i)(inner|outer)HTML|insertAdjacentHTML|document\.write|srcdoc|\beval\(|new Function|DOMParser|createContextualFragment|href=\$\{[a-z]\.(url|link)|javascript:`)
	checked := 0
	for path, f := range New().files {
		if strings.HasPrefix(path, "/console/vendor/") {
			continue // a file of it sets what it is given as dangerouslySetInnerHTML, which ours do not
		}
		checked++
		if found := maker.FindString(string(f.Body)); found != "" {
			t.Errorf("%s has %q", path, found)
		}
	}
	if checked < 10 {
		t.Errorf("%d files", checked)
	}
}
