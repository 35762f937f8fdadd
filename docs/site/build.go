package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed page.html
var pageHTML string

//go:embed style.css
var styleCSS []byte

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// section is a part of the navigation: documents by their paths in the repository.
type section struct {
	Title string
	Links []navLink
}

type navLink struct{ Title, Doc string }

var navigation = []section{
	{"Begin", []navLink{{"Carillon", "README.md"}, {"Five minutes", "docs/tutorial.md"}, {"Guides", "docs/guides/README.md"}}},
	{"Receive", []navLink{{"Callbacks", "docs/callbacks.md"}, {"Receivers", "docs/guides/receivers/README.md"}}},
	{"Run", []navLink{{"Operations", "docs/operations.md"}, {"Ways to run it", "deploy/README.md"}, {"Sizing", "docs/sizing.md"}, {"Backup", "docs/backup.md"}, {"Upgrades", "docs/upgrades.md"}, {"Security", "docs/security.md"}}},
	{"Reference", []navLink{{"API", reference}, {"Formats", "docs/formats"}, {"Changelog", "CHANGELOG.md"}}},
	{"Inside", []navLink{{"Architecture", "docs/ARCHITECTURE.md"}, {"Where to look", "docs/where-to-look.md"}, {"Decisions", "docs/adr"}, {"Benchmarks", "docs/benchmarks.md"}, {"Experiments", "docs/experiments.md"}, {"Scale", "docs/scale.md"}, {"Testing", "docs/testing.md"}, {"Found bugs", "docs/found-bugs.md"}}},
}

// reference is the document that becomes the reference of the API.
const reference = "docs/openapi.yaml"

// site is the site that is being built. Documents are named by their paths in the repository, with
// slashes.
type site struct {
	root, out string
	written   map[string]bool // pages and copies, by their paths in the site
}

func build(root, out string) error {
	s := &site{root: root, out: out, written: map[string]bool{}}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	docs, err := s.documents()
	if err != nil {
		return err
	}
	var faults []error
	for _, doc := range docs {
		if err := s.markdown(doc); err != nil {
			faults = append(faults, err)
		}
	}
	faults = append(faults, s.apiReference(), s.write("style.css", styleCSS))
	for _, part := range navigation {
		for _, link := range part.Links {
			if _, err := s.target(link.Doc); err != nil {
				faults = append(faults, fmt.Errorf("navigation: %w", err))
			}
		}
	}
	return errors.Join(faults...)
}

// documents are all files of Markdown.
func (s *site) documents() (list []string, err error) {
	err = filepath.WalkDir(s.root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		doc, err := filepath.Rel(s.root, name)
		if err != nil {
			return err
		}
		doc = filepath.ToSlash(doc)
		if entry.IsDir() && doc != "." && (strings.HasPrefix(entry.Name(), ".") || slices.Contains([]string{"bin", "testdata", "node_modules", "carillon-data"}, entry.Name())) {
			return filepath.SkipDir
		}
		if !entry.IsDir() && strings.HasSuffix(doc, ".md") {
			list = append(list, doc)
		}
		return nil
	})
	return list, err
}

// target is where a document, file or folder of the repository is in the site. Files that are no
// documents are copied, and a folder without a README has a page that lists its files.
func (s *site) target(doc string) (string, error) {
	info, err := os.Stat(filepath.Join(s.root, doc))
	if err != nil {
		return "", fmt.Errorf("%s is not in the repository", doc)
	}
	switch {
	case info.IsDir():
		if _, err := os.Stat(filepath.Join(s.root, doc, "README.md")); err == nil {
			return pageOf(path.Join(doc, "README.md")), nil
		}
		return path.Join(doc, "index.html"), s.folder(doc)
	case doc == reference || strings.HasSuffix(doc, ".md"):
		return pageOf(doc), nil
	}
	return doc, s.copy(doc)
}

// pageOf is the page of a document.
func pageOf(doc string) string {
	if path.Base(doc) == "README.md" {
		return path.Join(path.Dir(doc), "index.html")
	}
	return strings.TrimSuffix(doc, path.Ext(doc)) + ".html"
}

func (s *site) copy(file string) error {
	if s.written[file] {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(s.root, file))
	if err != nil {
		return err
	}
	return s.write(file, text)
}

// folder lists the documents of a folder that has no README.
func (s *site) folder(doc string) error {
	name := path.Join(doc, "index.html")
	if s.written[name] {
		return nil
	}
	s.written[name] = true
	entries, err := os.ReadDir(filepath.Join(s.root, doc))
	if err != nil {
		return err
	}
	var list bytes.Buffer
	fmt.Fprintf(&list, "<h1>%s</h1>\n<ul>\n", template.HTMLEscapeString(doc))
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		to, err := s.target(path.Join(doc, e.Name()))
		if err != nil {
			return err
		}
		title := e.Name()
		if text, err := os.ReadFile(filepath.Join(s.root, doc, e.Name())); err == nil && strings.HasPrefix(string(text), "# ") {
			title, _, _ = strings.Cut(string(text[2:]), "\n")
		}
		fmt.Fprintf(&list, "<li><a href=\"%s\">%s</a></li>\n", path.Base(to), template.HTMLEscapeString(title))
	}
	list.WriteString("</ul>\n")
	return s.page(doc, name, doc, template.HTML(list.String()))
}

// page writes one page with its navigation.
func (s *site) page(doc, name, title string, body template.HTML) error {
	type link struct {
		Title, Href string
		Here        bool
	}
	type part struct {
		Title string
		Links []link
	}
	up := strings.Repeat("../", strings.Count(name, "/"))
	var nav []part
	for _, p := range navigation {
		shown := part{Title: p.Title}
		for _, l := range p.Links {
			to := pageOf(l.Doc)
			if !strings.Contains(path.Base(l.Doc), ".") {
				to = path.Join(l.Doc, "index.html")
			}
			shown.Links = append(shown.Links, link{l.Title, up + to, l.Doc == doc})
		}
		nav = append(nav, shown)
	}
	var out bytes.Buffer
	err := pageTemplate.Execute(&out, map[string]any{"Title": title, "Up": up, "Nav": nav, "Body": body})
	if err != nil {
		return err
	}
	return s.write(name, out.Bytes())
}

func (s *site) write(name string, text []byte) error {
	s.written[name] = true
	file := filepath.Join(s.out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
