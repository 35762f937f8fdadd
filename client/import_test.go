package client

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// A module that is not of this repository builds with the line that the guides print.
func TestImportFromClone(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the Go command")
	}
	page, err := os.ReadFile("../docs/guides/README.md")
	must(t, err)
	line := regexp.MustCompile(`go (mod edit -require \S+ -replace carillon/client=)/path/to/carillon/client`).FindSubmatch(page)
	if line == nil {
		t.Fatal("docs/guides/README.md does not say how to import the package")
	}
	clone, err := filepath.Abs(".")
	must(t, err)
	dir := t.TempDir()
	const program = `package main

import "carillon/client"

func main() { _, _ = client.New([]string{"http://127.0.0.1:7700"}, client.Options{}) }
`
	must(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
	for _, command := range []string{"go mod init example.org/shop", "go " + string(line[1]) + clone, "go vet ."} {
		c := exec.Command("sh", "-c", command)
		c.Dir, c.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	if sum, err := os.Stat(filepath.Join(dir, "go.sum")); err == nil && sum.Size() > 0 {
		t.Error("the package needs more than the standard library")
	}
}
