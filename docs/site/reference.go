package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

//go:embed reference.html
var referenceHTML string

// spec is a place in the document, in the order in which it is written.
type spec struct {
	root, node *yaml.Node
}

// get is the value of a key, behind the references to it; nothing for a key that is not there.
func (s spec) get(keys ...string) spec {
	for _, key := range keys {
		s = s.follow()
		found := (*yaml.Node)(nil)
		if s.node != nil && s.node.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(s.node.Content); i += 2 {
				if s.node.Content[i].Value == key {
					found = s.node.Content[i+1]
				}
			}
		}
		s.node = found
	}
	return s
}

// ref is the last name of a reference, "" if this is none.
func (s spec) ref() string {
	if s.node != nil && s.node.Kind == yaml.MappingNode && len(s.node.Content) == 2 && s.node.Content[0].Value == "$ref" {
		return path.Base(s.node.Content[1].Value)
	}
	return ""
}

func (s spec) follow() spec {
	if s.ref() == "" {
		return s
	}
	names := strings.Split(strings.TrimPrefix(s.node.Content[1].Value, "#/"), "/")
	return spec{s.root, s.root}.get(names...).follow()
}

func (s spec) there() bool { return s.node != nil }

func (s spec) text() string {
	if s.node == nil {
		return ""
	}
	return s.node.Value
}

// entry is one key and its value.
type entry struct {
	Name string
	spec
}

func (s spec) entries() (all []entry) {
	s = s.follow()
	if s.node == nil {
		return nil
	}
	for i := 0; s.node.Kind == yaml.MappingNode && i+1 < len(s.node.Content); i += 2 {
		all = append(all, entry{s.node.Content[i].Value, spec{s.root, s.node.Content[i+1]}})
	}
	for i := 0; s.node.Kind == yaml.SequenceNode && i < len(s.node.Content); i++ {
		all = append(all, entry{"", spec{s.root, s.node.Content[i]}})
	}
	return all
}

// row is a parameter or a field.
type row struct {
	Name, In    string
	Required    bool
	Type, Prose template.HTML
}

type operation struct {
	ID, Method, Path string
	Summary, Prose   template.HTML
	Params           []row
	Bodies, Answers  []row
	Common           []string // answers that many have, by their status
}

type tag struct {
	Name, Title string
	Prose       template.HTML
	Operations  []operation
}

func (s *site) apiReference() error {
	source, err := os.ReadFile(filepath.Join(s.root, reference))
	if err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(source, &doc); err != nil {
		return fmt.Errorf("%s: %w", reference, err)
	}
	root := spec{doc.Content[0], doc.Content[0]}
	var tags []*tag
	for _, t := range root.get("tags").entries() {
		name := t.get("name").text()
		tags = append(tags, &tag{Name: strings.ReplaceAll(name, " ", "-"), Title: name, Prose: prose(t.get("description").text())})
	}
	for _, item := range append(root.get("paths").entries(), root.get("webhooks").entries()...) {
		for _, method := range item.entries() {
			if method.Name == "parameters" {
				continue
			}
			of := method.get("tags").entries()
			at := slices.IndexFunc(tags, func(t *tag) bool { return len(of) > 0 && t.Title == of[0].text() })
			if at < 0 {
				return fmt.Errorf("%s: %s %s has no tag that is described", reference, method.Name, item.Name)
			}
			tags[at].Operations = append(tags[at].Operations, describe(item, method))
		}
	}
	var answers []row
	for _, a := range root.get("components", "responses").entries() {
		answers = append(answers, row{Name: strings.TrimPrefix(a.Name, "P"), Prose: prose(a.get("description").text())})
	}
	type schema struct {
		Name        string
		Type, Prose template.HTML
		Fields      []row
	}
	var schemas []schema
	for _, c := range root.get("components", "schemas").entries() {
		schemas = append(schemas, schema{c.Name, typeOf(c.spec), prose(c.get("description").text()), fields(c.spec, "", nil)})
	}
	var body bytes.Buffer
	err = template.Must(template.New("reference").Parse(referenceHTML)).Execute(&body, map[string]any{
		"Title": root.get("info", "title").text(), "Prose": prose(root.get("info", "description").text()), "Tags": tags, "Answers": answers, "Schemas": schemas,
	})
	if err != nil {
		return err
	}
	if err := s.copy(reference); err != nil {
		return err
	}
	return s.page(reference, pageOf(reference), "API", template.HTML(body.String()))
}

func describe(item, method entry) operation {
	op := operation{ID: method.get("operationId").text(), Method: strings.ToUpper(method.Name), Path: item.Name,
		Summary: prose(method.get("summary").text()), Prose: prose(method.get("description").text())}
	for _, p := range append(item.get("parameters").entries(), method.get("parameters").entries()...) {
		op.Params = append(op.Params, row{p.get("name").text(), p.get("in").text(), p.get("required").text() == "true", typeOf(p.get("schema")), prose(p.get("description").text())})
	}
	for _, c := range method.get("requestBody", "content").entries() {
		op.Bodies = append(op.Bodies, row{Name: c.Name, Type: typeOf(c.get("schema"))})
	}
	for _, a := range method.get("responses").entries() {
		if ref := a.ref(); strings.HasPrefix(ref, "P") {
			op.Common = append(op.Common, strings.TrimPrefix(ref, "P"))
			continue
		}
		answer := row{Name: a.Name, Prose: prose(a.get("description").text())}
		for _, c := range a.get("content").entries() {
			answer.Type = typeOf(c.get("schema"))
		}
		op.Answers = append(op.Answers, answer)
	}
	slices.Sort(op.Common)
	return op
}

// fields are the properties of a schema, those of its parts and of objects in it too.
func fields(s spec, prefix string, list []row) []row {
	required := map[string]bool{}
	for _, r := range s.get("required").entries() {
		required[r.text()] = true
	}
	for _, part := range s.get("allOf").entries() {
		if part.ref() == "" {
			list = fields(part.spec, prefix, list)
		}
	}
	for _, p := range s.get("properties").entries() {
		list = append(list, row{Name: prefix + p.Name, Required: required[p.Name], Type: typeOf(p.spec), Prose: prose(p.get("description").text())})
		if p.ref() == "" {
			list = fields(p.spec, prefix+p.Name+".", list)
		}
		if items := p.get("items"); p.ref() == "" && items.ref() == "" && items.there() {
			list = fields(items, prefix+p.Name+"[].", list)
		}
	}
	return list
}

// typeOf says in a few words which values a schema allows.
func typeOf(s spec) template.HTML {
	if name := s.ref(); name != "" {
		return template.HTML(fmt.Sprintf(`<a href="#schema-%s">%s</a>`, name, template.HTMLEscapeString(name)))
	}
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	code := func(v string) string { return "<code>" + template.HTMLEscapeString(v) + "</code>" }
	for _, key := range []string{"oneOf", "anyOf", "allOf"} {
		var parts []string
		for _, part := range s.get(key).entries() {
			parts = append(parts, string(typeOf(part.spec)))
		}
		if parts != nil {
			add("%s", strings.Join(parts, map[bool]string{true: " and ", false: " or "}[key == "allOf"]))
		}
	}
	switch values := s.get("enum").entries(); {
	case values != nil:
		var parts []string
		for _, v := range values {
			parts = append(parts, code(v.text()))
		}
		add("%s", strings.Join(parts, ", "))
	case s.get("const").there():
		add("%s", code(s.get("const").text()))
	case s.get("items").there():
		add("list of %s", typeOf(s.get("items")))
	case s.get("type").text() != "":
		add("%s", template.HTMLEscapeString(s.get("type").text()))
	case words == nil:
		add("anything")
	}
	if v := s.get("default").text(); v != "" {
		add("default %s", code(v))
	}
	if least, most := s.get("minimum").text(), s.get("maximum").text(); least != "" || most != "" {
		add("%s–%s", template.HTMLEscapeString(least), template.HTMLEscapeString(most))
	}
	if pattern := s.get("pattern").text(); pattern != "" {
		add("%s", code(pattern))
	}
	return template.HTML(strings.Join(words, ", "))
}
