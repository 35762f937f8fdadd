package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// configFile has the values of a configuration file, by flag name, each value as it would stand on
// the command line.
type configFile map[string]string

// unusedKey is a key of the file whose value is not used, and the flag or variable that goes first.
type unusedKey struct{ key, by string }

// maxConfigBytes is far above any sensible file and far below one that hurts.
const maxConfigBytes = 1 << 20

// readConfigFile reads strictly: a key that is unknown or there twice, and a value that its flag
// would not take, are faults. All of them are reported at once, each with its line.
func readConfigFile(path string, known []setting) (configFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	dec := yaml.NewDecoder(io.LimitReader(f, maxConfigBytes))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return configFile{}, nil // empty, or comments only
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is a second document after the first; one file is one document", path)
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return configFile{}, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: expected lines of key: value", path, root.Line)
	}
	return readMapping(path, root, known)
}

func readMapping(path string, root *yaml.Node, known []setting) (configFile, error) {
	file := configFile{}
	lines := map[string]int{}
	unknown := false
	var faults []error
	fault := func(line int, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s:%d: %s", path, line, fmt.Sprintf(format, args...)))
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, node := root.Content[i], root.Content[i+1]
		at := slices.IndexFunc(known, func(s setting) bool { return s.key == key.Value })
		if at < 0 {
			unknown = true
			meant := settingKey(strings.ToLower(key.Value))
			if slices.Contains(keys(known), meant) {
				fault(key.Line, "unknown key %q, did you mean %s?", key.Value, meant)
			} else {
				fault(key.Line, "unknown key %q", key.Value)
			}
			continue
		}
		s := known[at]
		if first, twice := lines[s.key]; twice {
			fault(key.Line, "key %q is already on line %d", s.key, first)
			continue
		}
		lines[s.key] = key.Line
		value, err := commandLineValue(node)
		if err == nil {
			err = s.accepts(value)
		}
		if err != nil {
			fault(node.Line, "%s: %v", s.key, err)
			continue
		}
		file[s.flag] = value
	}
	if unknown {
		faults = append(faults, fmt.Errorf("known keys: %s", strings.Join(keys(known), ", ")))
	}
	return file, errors.Join(faults...)
}

// commandLineValue spells a scalar, or a list of scalars, as on the command line.
func commandLineValue(node *yaml.Node) (string, error) {
	switch node.Kind {
	case yaml.ScalarNode:
		if node.Tag == "!!null" {
			return "", errors.New("no value; leave the key out to have the default")
		}
		return node.Value, nil
	case yaml.SequenceNode:
		var values []string
		for _, item := range node.Content {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" || strings.Contains(item.Value, ",") {
				return "", errors.New("expected a list of plain values")
			}
			values = append(values, item.Value)
		}
		return strings.Join(values, ","), nil
	default:
		return "", errors.New("expected a plain value or a list of them")
	}
}
