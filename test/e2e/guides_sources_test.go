package e2e

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"carillon/test/freeport"
)

// guideSources start what a guide reads from, with the jobs that it speaks of, and return pairs of
// addresses: the page's and the real one.
var guideSources = map[string]func(*testing.T) []string{
	"migrate-from-redis": func(t *testing.T) []string { return []string{"127.0.0.1:6379", redisServer(t)} },
	"migrate-from-asynq": func(t *testing.T) []string {
		address := redisServer(t)
		inFolder(t, ".", nil, asynqProgram(t), address)
		return []string{"127.0.0.1:6379", address}
	},
	"migrate-from-beanstalkd": func(t *testing.T) []string {
		address := beanstalkServer(t)
		// What this connection reserves stays so while it is open, but for the buried one.
		stalk(t, address, "use mail", "put 0 0 60 5\r\nhello", "put 1024 3600 120 15\r\n{\"to\": \"alice\"}",
			"use default", "put 1024 0 60 4\r\n\x00\x01\r\n", "put 5 0 60 3\r\nbad", "reserve", "bury 4 5")
		return []string{"127.0.0.1:11300", address}
	},
	"outbox": func(t *testing.T) []string { return []string{"127.0.0.1:5432", postgres(t)} },
}

func redisServer(t *testing.T, flags ...string) string {
	t.Helper()
	address := freeport.Address(t)
	_, port, _ := net.SplitHostPort(address)
	other(t, address, "redis-server", append([]string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--dir", t.TempDir()}, flags...)...)
	return address
}

func beanstalkServer(t *testing.T) string {
	t.Helper()
	address := freeport.Address(t)
	_, port, _ := net.SplitHostPort(address)
	other(t, address, "beanstalkd", "-l", "127.0.0.1", "-p", port)
	return address
}

// other runs another system's server; without it the test is skipped.
func other(t *testing.T, address, program string, args ...string) {
	t.Helper()
	notShort(t)
	path, err := exec.LookPath(program)
	if err != nil {
		t.Skipf("NOT CHECKED: %s is not installed (Debian: apt-get install redis-server beanstalkd)", program)
	}
	begin(t, append([]string{path}, args...))
	awaitListener(t, address)
}

// asynqProgram builds the program that writes tasks by Asynq itself, which is of a module of its
// own.
func asynqProgram(t *testing.T) string {
	t.Helper()
	program := t.TempDir() + "/asynq"
	cmd := exec.Command("go", "build", "-o", program, ".")
	cmd.Dir = "asynq"
	if out, err := cmd.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "dial tcp") || strings.Contains(string(out), "GOPROXY=off") {
			t.Skipf("NOT CHECKED: Asynq cannot be fetched: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// stalk has beanstalkd do requests one after the other. None of them may fail.
func stalk(t *testing.T, address string, requests ...string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for _, request := range requests {
		fmt.Fprintf(conn, "%s\r\n", request)
		answer, err := answers.ReadString('\n')
		if err == nil && strings.HasPrefix(answer, "RESERVED") {
			_, err = answers.ReadString('\n')
		}
		if word, _, _ := strings.Cut(strings.TrimSpace(answer), " "); err != nil || !strings.Contains("USING INSERTED RESERVED BURIED", word) {
			t.Fatalf("%q: %q %v", request, answer, err)
		}
	}
}
