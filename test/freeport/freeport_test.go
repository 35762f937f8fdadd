package freeport

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestProcessesShareNoPort: the ports of several processes at a time differ, more than a block's
// each, although nothing listens at them.
func TestProcessesShareNoPort(t *testing.T) {
	const each = 2*blockPorts + 7
	if os.Getenv("FREEPORT_OTHER") != "" {
		for range each {
			os.Stdout.WriteString(Address(t) + "\n")
		}
		_, _ = os.Stdin.Read(make([]byte, 1)) // until it is told to end
		os.Exit(0)
	}
	seen := map[string]bool{}
	take := func(address string) {
		if seen[address] {
			t.Errorf("%s is handed out twice", address)
		}
		seen[address] = true
	}
	for range each {
		take(Address(t))
	}
	for range 3 {
		other := exec.Command(os.Args[0], "-test.run", "^TestProcessesShareNoPort$")
		other.Env = append(os.Environ(), "FREEPORT_OTHER=1")
		hold, err := other.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer hold.Close()
		out, err := other.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { hold.Close(); _ = other.Wait() }()
		var text bytes.Buffer
		for strings.Count(text.String(), "\n") < each {
			part := make([]byte, 4096)
			n, err := out.Read(part)
			if err != nil {
				t.Fatal(err, text.String())
			}
			text.Write(part[:n])
		}
		for address := range strings.SplitSeq(strings.TrimSpace(text.String()), "\n") {
			take(address)
		}
	}
}
