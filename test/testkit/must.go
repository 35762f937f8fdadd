package testkit

import (
	"os"
	"testing"
)

// Must ends a test with an error, if there is one. t is a testing.TB, or a *rapid.T.
func Must(t interface {
	Helper()
	Fatal(args ...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// File is what a file has.
func File(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	Must(t, err)
	return text
}
