package main

import (
	"errors"
	"os"
	"strings"
)

// The table in the document stands between these lines.
const (
	tableBegins = "<!-- mutants: written by go run ./test/sim/mutants -table -->\n"
	tableEnds   = "<!-- end of mutants -->\n"
)

var errNoTable = errors.New("the document has no place for the table of mutants")

// withTable is the text of a document with the table as it must be: the names of the mutants, by
// what they protect. What is wrong in each stands in its file alone.
func withTable(text string, mutants []mutant) (string, error) {
	before, rest, ok := strings.Cut(text, tableBegins)
	_, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		return "", errNoTable
	}
	var kinds []string // in the order of the files
	names := map[string][]string{}
	for i := range mutants {
		m := &mutants[i]
		if names[m.protects] == nil {
			kinds = append(kinds, m.protects)
		}
		names[m.protects] = append(names[m.protects], "`"+m.name+"`")
	}
	var b strings.Builder
	b.WriteString(before + tableBegins + "\n| protects | mutants |\n|---|---|\n")
	for _, kind := range kinds {
		b.WriteString("| " + kind + " | " + strings.Join(names[kind], ", ") + " |\n")
	}
	b.WriteString("\n" + tableEnds + after)
	return b.String(), nil
}

func writeTable(file string, mutants []mutant) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := withTable(string(text), mutants)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(changed), 0o644) //nolint:gosec // a document
}
