package main

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

// markdown renders one document.
func (s *site) markdown(doc string) error {
	source, err := os.ReadFile(filepath.Join(s.root, doc))
	if err != nil {
		return err
	}
	tree := markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(headingIDs{}))))
	title := doc
	var faults []error
	err = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 1 && title == doc {
				title = string(n.Lines().Value(source))
			}
		case *ast.Link:
			var err error
			n.Destination, err = s.rewrite(doc, n.Destination)
			faults = append(faults, err)
		case *ast.Image:
			var err error
			n.Destination, err = s.rewrite(doc, n.Destination)
			faults = append(faults, err)
		}
		return ast.WalkContinue, nil
	})
	if err = errors.Join(append(faults, err)...); err != nil {
		return err
	}
	var body bytes.Buffer
	if err := markdown.Renderer().Render(&body, source, tree); err != nil {
		return fmt.Errorf("%s: %w", doc, err)
	}
	return s.page(doc, pageOf(doc), title, template.HTML(body.String()))
}

// rewrite turns a link within the repository into one within the site.
func (s *site) rewrite(doc string, link []byte) ([]byte, error) {
	u, err := url.Parse(string(link))
	if err != nil {
		return link, fmt.Errorf("%s: %w", doc, err)
	}
	if u.Scheme != "" || u.Host != "" || u.Path == "" {
		return link, nil
	}
	to, err := s.target(path.Join(path.Dir(doc), u.Path))
	if err != nil {
		return link, fmt.Errorf("%s links to %s: %w", doc, link, err)
	}
	from := path.Dir(pageOf(doc))
	relative, err := filepath.Rel(filepath.FromSlash(from), filepath.FromSlash(to))
	if err != nil {
		return link, err
	}
	if u.Path = filepath.ToSlash(relative); u.Fragment != "" {
		return []byte(u.Path + "#" + u.Fragment), nil
	}
	return []byte(u.Path), nil
}

// headingIDs names headings as the usual hosts of repositories do, so that a link to a part of a
// page leads there in both places.
type headingIDs map[string]bool

func (h headingIDs) Generate(value []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			return unicode.ToLower(r)
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.TrimSpace(string(value)))
	unique := id
	for n := 1; h[unique]; n++ {
		unique = fmt.Sprintf("%s-%d", id, n)
	}
	h[unique] = true
	return []byte(unique)
}

func (h headingIDs) Put(value []byte) { h[string(value)] = true }

// prose renders a text of the API's description.
func prose(source string) template.HTML {
	var out bytes.Buffer
	if err := markdown.Convert([]byte(source), &out); err != nil {
		return template.HTML(template.HTMLEscapeString(source))
	}
	rendered := strings.TrimSpace(out.String())
	if inner, ok := strings.CutPrefix(rendered, "<p>"); ok && strings.Count(rendered, "<p>") == 1 {
		rendered = strings.TrimSuffix(inner, "</p>")
	}
	return template.HTML(rendered)
}
