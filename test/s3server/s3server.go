// Package s3server runs a real S3 server for tests: the Versity gateway, on loopback, with its
// objects in a folder of the test. `make s3-server` builds it.
package s3server

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"carillon/test/freeport"
)

// Bucket is there from the start.
const Bucket = "backups"

// Key and Secret are the credentials of the server.
const (
	Key    = "test-access-key"
	Secret = "test-secret-key-that-nothing-may-show"
)

// Server is one that runs until the test ends.
type Server struct {
	URL string
	Dir string // of the bucket: a file for each object
}

// Start starts a server, and names it in the environment as the tools of AWS expect. Where no
// server is installed the test is skipped.
func Start(t testing.TB) *Server {
	t.Helper()
	program := find(t)
	dir := t.TempDir()
	address := freeport.Address(t)
	s := &Server{URL: "http://" + address, Dir: filepath.Join(dir, "data", Bucket)}
	for _, d := range []string{s.Dir, filepath.Join(dir, "meta")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program, "--port", address, "--quiet", "posix", "--sidecar", filepath.Join(dir, "meta"), filepath.Join(dir, "data"))
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+Key, "ROOT_SECRET_KEY="+Secret)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_S3": s.URL, "AWS_ACCESS_KEY_ID": Key, "AWS_SECRET_ACCESS_KEY": Secret, "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	s.await(t)
	return s
}

// await waits until the server answers, whatever it answers.
func (s *Server) await(t testing.TB) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if resp, err := http.Get(s.URL); err == nil {
			_ = resp.Body.Close()
			return
		}
		<-tick.C
	}
	t.Fatal("the S3 server does not answer")
}

// find looks in bin of the repository, and then where programs are.
func find(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if found, _ := filepath.Glob(filepath.Join(dir, "bin", "versitygw-v*")); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	path, err := exec.LookPath("versitygw")
	if err != nil {
		t.Skip("SKIPPED: no S3 server is built, so backups to S3 were not tried (make s3-server)")
	}
	return path
}
