package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// licences are what the licences of the modules in binaries ask of those who pass these on: the
// texts of all of them in one file, and their names in the list of what each binary is made of.
type licences struct {
	version string
	main    string              // path of the module that the binaries are of
	modules map[string]licensed // by path and version
}

type licensed struct {
	module.Version
	dir string
	ids []string // SPDX
}

const goStandardLibrary = "std"

// licenceFile matches names of files that have to go along.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|copyright|notice|patents)([-._].*)?$`)

// named are the licences whose texts stand in a file, by the words that each alone has.
func named(text string) (ids []string) {
	words := strings.Join(strings.Fields(text), " ")
	for _, known := range []struct{ words, id string }{
		{"Permission is hereby granted, free of charge, to any person obtaining a copy", "MIT"},
		{"Apache License Version 2.0", "Apache-2.0"}, {"Apache License, Version 2.0", "Apache-2.0"},
		{"Mozilla Public License, version 2.0", "MPL-2.0"}, {"Mozilla Public License Version 2.0", "MPL-2.0"},
		{"CC0 1.0 Universal", "CC0-1.0"}, {"purpose with or without fee is hereby granted", "ISC"},
	} {
		if strings.Contains(words, known.words) && !slices.Contains(ids, known.id) {
			ids = append(ids, known.id)
		}
	}
	if strings.Contains(words, "Redistribution and use in source and binary forms") {
		if strings.Contains(words, "to endorse or promote products") {
			return append(ids, "BSD-3-Clause")
		}
		return append(ids, "BSD-2-Clause")
	}
	return ids
}

// read finds the modules in binaries, and where their files are in the module cache.
func (l *licences) read(binaries []string) error {
	l.modules = map[string]licensed{}
	for _, file := range binaries {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return err
		}
		l.main = info.Main.Path
		l.add(licensed{Version: module.Version{Path: goStandardLibrary, Version: info.GoVersion}})
		for _, dep := range info.Deps {
			if dep.Replace == nil { // the Go client is ours
				l.add(licensed{Version: module.Version{Path: dep.Path, Version: dep.Version}})
			}
		}
	}
	args := []string{"mod", "download", "-json"}
	for _, m := range l.modules {
		if m.Path != goStandardLibrary {
			args = append(args, m.String())
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go mod download: %w", err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var m struct{ Path, Version, Dir string }
		if err := dec.Decode(&m); err != nil {
			return err
		}
		l.add(licensed{Version: module.Version{Path: m.Path, Version: m.Version}, dir: m.Dir})
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	for _, m := range l.modules {
		if m.Path == goStandardLibrary {
			m.dir = strings.TrimSpace(string(root))
			l.add(m)
		}
	}
	return nil
}

func (l *licences) add(m licensed) { l.modules[m.String()] = m }

// notices writes each text once, below the modules that have it. Folders are searched, too: a
// module may hold a copy of another one's files.
func (l *licences) notices(out string) error {
	users := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(l.modules)) {
		m := l.modules[key]
		err := filepath.WalkDir(m.dir, func(file string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() {
				if name := entry.Name(); name == "testdata" || m.Path == goStandardLibrary && file != m.dir {
					return filepath.SkipDir
				}
				return nil
			}
			if !licenceFile.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
				return nil
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			name, _ := filepath.Rel(m.dir, file) // it is below
			body := strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))
			users[body] = append(users[body], fmt.Sprintf("%s %s: %s", m.Path, m.Version.Version, name))
			if filepath.Dir(name) == "." {
				for _, id := range named(body) {
					if !slices.Contains(m.ids, id) {
						m.ids = append(m.ids, id)
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if len(m.ids) == 0 {
			return fmt.Errorf("%s: no licence is found in %s", key, m.dir)
		}
		l.add(m)
	}

	var text strings.Builder
	fmt.Fprintf(&text, "Carillon %s contains the Go modules below; each text stands under those that it belongs to.\n", l.version)
	fmt.Fprintf(&text, "The sources of a module: https://proxy.golang.org/PATH/@v/VERSION.zip; of std: https://go.dev/dl/.\n\n")
	for _, key := range slices.Sorted(maps.Keys(l.modules)) {
		m := l.modules[key]
		fmt.Fprintf(&text, "%s %s (%s)\n", m.Path, m.Version.Version, strings.Join(m.ids, ", "))
	}
	for _, body := range slices.SortedFunc(maps.Keys(users), func(a, b string) int { return slices.Compare(users[a], users[b]) }) {
		fmt.Fprintf(&text, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 78), strings.Join(users[body], "\n"), body)
	}
	return os.WriteFile(out, []byte(text.String()), 0o644)
}

// complete puts the names of the licences into a CycloneDX list, and names our own client.
func (l *licences) complete(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const folder = "./client" // of the replace in go.mod
	client := l.main + "/client"
	text = bytes.ReplaceAll(text, []byte("golang/"+folder+"@(devel)"), []byte("golang/"+client+"@"+l.version))
	var list map[string]any
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	components, _ := list["components"].([]any)
	if metadata, ok := list["metadata"].(map[string]any); ok {
		components = append(slices.Clone(components), metadata["component"])
	}
	for _, c := range components {
		component, _ := c.(map[string]any)
		if component["name"] == folder {
			component["name"], component["version"] = client, l.version
		}
		name, version := fmt.Sprint(component["name"]), fmt.Sprint(component["version"])
		ids := l.modules[module.Version{Path: name, Version: version}.String()].ids
		if name == l.main || name == client {
			ids = []string{"MIT"}
		}
		if ids == nil {
			return fmt.Errorf("%s: the licence of %s %s is not known", file, name, version)
		}
		var licences []any
		for _, id := range ids {
			licences = append(licences, map[string]any{"license": map[string]any{"id": id}})
		}
		component["licenses"] = licences
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(list); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}
