package carillon_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"carillon/test/testkit/growth"
)

// TestEachDimensionIsMeasured: everything of which a user may have many is filled by a test.
func TestEachDimensionIsMeasured(t *testing.T) {
	named := regexp.MustCompile(`growth\.Dimension\{Name: "([^"]+)"`)
	var measured []string
	for _, f := range sources(t) {
		if !f.isTest || !strings.HasPrefix(filepath.Base(f.name), "dimensions_") {
			continue
		}
		text, err := os.ReadFile(f.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			measured = append(measured, m[1])
		}
	}
	for _, d := range growth.Dimensions {
		if !slices.Contains(measured, d) {
			t.Errorf("no test fills %q", d)
		}
	}
	for _, d := range measured {
		if !slices.Contains(growth.Dimensions, d) {
			t.Errorf("%q is measured, but is none of growth.Dimensions", d)
		}
	}
}
