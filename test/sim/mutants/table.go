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

// withTable is the text of a document with the table as it must be.
func withTable(text string, mutants []mutant) (string, error) {
	before, rest, ok := strings.Cut(text, tableBegins)
	_, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		return "", errNoTable
	}
	var b strings.Builder
	b.WriteString(before + tableBegins + "\n| mutant | protects | what is wrong |\n|---|---|---|\n")
	for i := range mutants {
		m := &mutants[i]
		b.WriteString("| `" + m.name + "` | " + m.protects + " | " + m.what + " |\n")
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
