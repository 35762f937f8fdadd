package main

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// page has the anchors of a page, and its links.
type page struct {
	ids   map[string]bool
	links []string
	text  string
}

// TestEveryLinkLeadsSomewhere builds the site of this repository: each link within it leads to a
// page or file that is there, and to a part of it that is there. Nothing is fetched from another
// host.
func TestEveryLinkLeadsSomewhere(t *testing.T) {
	out := t.TempDir()
	if err := build("../..", out); err != nil {
		t.Fatal(err)
	}
	pages := map[string]page{}
	err := filepath.WalkDir(out, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".html") {
			pages[name] = readPage(t, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for name, p := range pages {
		for _, link := range p.links {
			u, err := url.Parse(link)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if u.Scheme != "" || u.Host != "" {
				continue
			}
			links++
			to := name
			if u.Path != "" {
				to = filepath.Join(filepath.Dir(name), filepath.FromSlash(u.Path))
			}
			info, err := os.Stat(to)
			if err != nil || info.IsDir() {
				t.Errorf("%s links to %s, which is no file of the site", name, link)
			} else if known, isPage := pages[to]; u.Fragment != "" && isPage && !known.ids[u.Fragment] {
				t.Errorf("%s links to %s, and the page has no such part", name, link)
			}
		}
	}
	for _, want := range []string{"index.html", "docs/operations.html", "docs/openapi.html", "docs/adr/index.html", "docs/guides/receivers/index.html", "docs/openapi.yaml"} {
		if _, err := os.Stat(filepath.Join(out, want)); err != nil {
			t.Error(err)
		}
	}
	if len(pages) < 50 || links < 1000 {
		t.Errorf("%d pages, %d links", len(pages), links)
	}
	api := pages[filepath.Join(out, "docs", "openapi.html")]
	for _, id := range []string{"addTimer", "callback", "schema-Timer", "answer-409"} {
		if !api.ids[id] {
			t.Errorf("the reference has no %s", id)
		}
	}
	if !strings.Contains(api.text, "POST /v1/topics/{topic}/timers") {
		t.Error("the reference does not say how a timer is added")
	}
}

func readPage(t *testing.T, name string) page {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tree, err := html.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	p := page{ids: map[string]bool{}}
	var text strings.Builder
	for n := range tree.Descendants() {
		if n.Type == html.TextNode {
			text.WriteString(n.Data)
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "id" && p.ids[a.Val]:
				t.Errorf("%s has the id %s twice", name, a.Val)
			case a.Key == "id":
				p.ids[a.Val] = true
			case a.Key == "href" && n.Data == "a":
				p.links = append(p.links, a.Val)
			case a.Key == "href" || a.Key == "src":
				p.links = append(p.links, a.Val)
				if strings.Contains(a.Val, "//") {
					t.Errorf("%s fetches %s", name, a.Val)
				}
			}
		}
		if n.Data == "script" {
			t.Errorf("%s runs a script", name)
		}
	}
	p.text = text.String()
	return p
}

// TestDeadLinkIsAFault: a document that links to nothing stops the build, and the fault names both.
func TestDeadLinkIsAFault(t *testing.T) {
	s := &site{root: t.TempDir(), out: t.TempDir(), written: map[string]bool{}}
	if err := os.WriteFile(filepath.Join(s.root, "a.md"), []byte("# A\n\n[here](#a) [there](docs/b.md)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.markdown("a.md"); err == nil || !strings.Contains(err.Error(), "a.md links to docs/b.md") {
		t.Error(err)
	}
}
