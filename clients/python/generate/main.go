// Command generate prints the types of docs/openapi.yaml as Python's TypedDicts:
//
//	go run ./clients/python/generate >clients/python/src/carillon/types.py
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// names of types that the document calls otherwise, or gives no name.
var names = map[string]string{
	"Add": "Spec", "PulledList.timers": "Lease", "HistoryList.entries": "Entry", "ClaimResults.results": "ReceiptResult",
	"BulkCancel": "Selector", "BulkReschedule": "Reschedule", "Swept.skips": "Skip",
}

// natural are fields for which the client takes Python's own types, too.
var natural = map[string]string{
	"When.at": "datetime", "When.delay": "timedelta", "Fields.payload_base64": "bytes", "Reschedule.at": "datetime",
	"Repeat.until": "datetime", "Patch.payload_base64": "bytes",
}

// keywords of Python that are names of fields.
var keywords = []string{"from", "is", "in", "not", "class", "def", "pass", "global", "lambda", "with", "as"}

func main() {
	text, err := os.ReadFile("docs/openapi.yaml")
	if err == nil {
		err = generate(os.Stdout, text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

const head = `"""The types of the API, made from docs/openapi.yaml by clients/python/generate. Do not edit."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Dict, List, Literal, Optional, TypedDict, Union

TimeOrText = Union[str, int, datetime, None]
"""A time in a filter: RFC 3339, Unix milliseconds, or a datetime with a zone."""

`

// generate writes the types of a document. Types that others are made of come first.
func generate(w io.Writer, document []byte) error {
	var root yaml.Node
	if err := yaml.Unmarshal(document, &root); err != nil {
		return err
	}
	g := &generator{schemas: at(at(root.Content[0], "components"), "schemas"), done: map[string]bool{}}
	g.out.WriteString(head)
	for i := 0; i < len(g.schemas.Content); i += 2 {
		g.schema(g.schemas.Content[i].Value)
	}
	_, err := w.Write(append(bytes.TrimRight(g.out.Bytes(), "\n"), '\n'))
	return err
}

type generator struct {
	schemas *yaml.Node
	done    map[string]bool
	out     bytes.Buffer
}

// schema writes a named schema, unless that is done.
func (g *generator) schema(name string) {
	if g.done[name] {
		return
	}
	g.done[name] = true
	s := at(g.schemas, name)
	switch name {
	case "Patch":
		g.class(name, []string{g.of("When")}, []*yaml.Node{at(g.schemas, "Fields")}, true)
	case "PolicyPatch":
		g.class(name, nil, []*yaml.Node{at(g.schemas, "Policy")}, true)
	default:
		if at(s, "properties") != nil || at(s, "allOf") != nil {
			g.object(pythonic(name), s)
		} else if text(s, "type") == "object" {
			fmt.Fprintf(&g.out, "%s = Dict[str, Any]\n\n", name)
		} else {
			fmt.Fprintf(&g.out, "%s = %s\n\n", name, g.kind(name, s, false))
		}
	}
}

// of makes sure that a schema is written, and returns its name.
func (g *generator) of(name string) string {
	g.schema(name)
	return pythonic(name)
}

func pythonic(name string) string {
	if other, ok := names[name]; ok {
		return other
	}
	return name
}

// object writes a class for an object, or for what allOf puts together.
func (g *generator) object(name string, s *yaml.Node) {
	var bases []string
	own := []*yaml.Node{s}
	if all := at(s, "allOf"); all != nil {
		own = nil
		for _, part := range all.Content {
			if ref := text(part, "$ref"); ref != "" {
				bases = append(bases, g.of(refName(ref)))
			} else {
				own = append(own, part)
			}
		}
	}
	g.class(name, bases, own, false)
}

type field struct {
	name, kind, doc string
	required        bool
}

// class writes a class with the fields of its parts; those of a nullable one may all be None.
func (g *generator) class(name string, bases []string, parts []*yaml.Node, nullable bool) {
	var fields []field
	for _, part := range parts {
		var required []string
		if list := at(part, "required"); list != nil {
			for _, one := range list.Content {
				required = append(required, one.Value)
			}
		}
		properties := at(part, "properties")
		for i := 0; properties != nil && i < len(properties.Content); i += 2 {
			f := field{name: properties.Content[i].Value}
			f.kind = g.kind(name+"."+f.name, properties.Content[i+1], nullable)
			if nullable {
				f.kind = "Optional[" + f.kind + "]"
			}
			f.doc, f.required = text(properties.Content[i+1], "description"), slices.Contains(required, f.name) && !nullable
			if !g.inherited(f.name, bases) {
				fields = append(fields, f)
			}
		}
	}
	if slices.ContainsFunc(fields, func(f field) bool { return slices.Contains(keywords, f.name) }) {
		g.functional(name, fields)
		return
	}
	var required, optional []field
	for _, f := range fields {
		if f.required {
			required = append(required, f)
		} else {
			optional = append(optional, f)
		}
	}
	if len(required) > 0 && len(optional) > 0 {
		base := "_" + name
		g.body(base, orTypedDict(bases), required)
		bases, required = []string{base}, nil
	}
	bases = orTypedDict(bases)
	if len(required) == 0 {
		bases = append(bases, "total=False")
	}
	g.body(name, bases, append(required, optional...))
}

func orTypedDict(bases []string) []string {
	if len(bases) == 0 {
		return []string{"TypedDict"}
	}
	return bases
}

// inherited reports whether a base has the field: a TypedDict may not give it another type.
func (g *generator) inherited(field string, bases []string) bool {
	return slices.ContainsFunc(bases, func(base string) bool { return at(at(at(g.schemas, base), "properties"), field) != nil })
}

func (g *generator) body(name string, bases []string, fields []field) {
	fmt.Fprintf(&g.out, "\nclass %s(%s):\n", name, strings.Join(bases, ", "))
	for _, f := range fields {
		fmt.Fprintf(&g.out, "    %s: %s\n", f.name, f.kind)
		if f.doc != "" {
			fmt.Fprintf(&g.out, "    %s\n", docstring(f.doc))
		}
	}
	if len(fields) == 0 {
		g.out.WriteString("    pass\n")
	}
	g.out.WriteString("\n")
}

// functional writes a class with fields whose names are keywords.
func (g *generator) functional(name string, fields []field) {
	fmt.Fprintf(&g.out, "\n%s = TypedDict(\n    %q,\n    {\n", name, name)
	for _, f := range fields {
		fmt.Fprintf(&g.out, "        %q: %s,\n", f.name, f.kind)
	}
	g.out.WriteString("    },\n    total=False,\n)\n\n")
}

func docstring(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(strings.ReplaceAll(lines[i], `\`, `\\`), " ")
	}
	return `"""` + strings.Join(lines, "\n    ") + `"""`
}

// kind is the type of a field. path names what is made for it.
func (g *generator) kind(path string, s *yaml.Node, nullable bool) string {
	own := g.plainKind(path, s, nullable)
	if extra := natural[path]; extra != "" {
		return "Union[" + own + ", " + extra + "]"
	}
	return own
}

func (g *generator) plainKind(path string, s *yaml.Node, nullable bool) string {
	if ref := text(s, "$ref"); ref != "" {
		return g.refKind(refName(ref), nullable)
	}
	if all := at(s, "allOf"); all != nil {
		if len(all.Content) == 1 {
			return g.kind(path, all.Content[0], nullable)
		}
		name := inner(path)
		g.object(name, s)
		return name
	}
	if one := at(s, "oneOf"); one != nil {
		var kinds []string
		for _, part := range one.Content {
			kinds = append(kinds, g.kind(path, part, nullable))
		}
		return "Union[" + strings.Join(kinds, ", ") + "]"
	}
	if values := at(s, "enum"); values != nil {
		return literal(values.Content...)
	}
	if value := at(s, "const"); value != nil {
		return literal(value)
	}
	kinds := at(s, "type")
	if kinds != nil && kinds.Kind == yaml.SequenceNode {
		var list []string
		for _, k := range kinds.Content {
			list = append(list, scalars[k.Value])
		}
		return "Union[" + strings.Join(list, ", ") + "]"
	}
	switch kind := text(s, "type"); kind {
	case "array":
		return "List[" + g.kind(path, at(s, "items"), nullable) + "]"
	case "object":
		if more := at(s, "additionalProperties"); more != nil && more.Kind == yaml.MappingNode {
			value := g.kind(path, more, false)
			if nullable {
				value = "Optional[" + value + "]"
			}
			return "Dict[str, " + value + "]"
		}
		if at(s, "properties") == nil {
			return "Dict[str, Any]"
		}
		name := inner(path)
		if !g.done[name] {
			g.done[name] = true
			g.class(name, nil, []*yaml.Node{s}, nullable)
		}
		return name
	case "":
		return "Any"
	default:
		return scalars[kind]
	}
}

// refKind is the type that a reference is to; of a nullable object it is a variant whose fields may
// be None.
func (g *generator) refKind(name string, nullable bool) string {
	s := at(g.schemas, name)
	if !nullable || at(s, "properties") == nil {
		return g.of(name)
	}
	variant := pythonic(name) + "Patch"
	if !g.done[variant] {
		g.done[variant] = true
		g.class(variant, nil, []*yaml.Node{s}, true)
	}
	return variant
}

var scalars = map[string]string{"null": "None", "string": "str", "integer": "int", "number": "float", "boolean": "bool"}

func literal(values ...*yaml.Node) string {
	var list []string
	for _, v := range values {
		switch v.Tag {
		case "!!str":
			list = append(list, fmt.Sprintf("%q", v.Value))
		case "!!bool":
			list = append(list, map[string]string{"true": "True", "false": "False"}[v.Value])
		default:
			list = append(list, v.Value)
		}
	}
	return "Literal[" + strings.Join(list, ", ") + "]"
}

// inner is the name of a type that a field alone has.
func inner(path string) string {
	if name, ok := names[path]; ok {
		return name
	}
	outer, field, _ := strings.Cut(path, ".")
	name := outer
	for _, word := range strings.Split(field, "_") {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}

func refName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// at is the value of a key, nil where there is none.
func at(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func text(n *yaml.Node, key string) string {
	if v := at(n, key); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}
