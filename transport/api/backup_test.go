package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"carillon/timer"
	"carillon/transport/api/web"
)

// A backup is streamed as it is made. A failure before the first byte is a problem; a later one
// cuts the stream.
func TestBackupStreams(t *testing.T) {
	h := newHarness(t)
	h.engine.backup = func(_ context.Context, to io.Writer) error {
		for range 100 {
			if _, err := io.WriteString(to, strings.Repeat("x", 10_000)); err != nil {
				return err
			}
		}
		return nil
	}
	r := h.do("POST", "/v1/backup", "").want(200)
	if len(r.body) != 1_000_000 || r.header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("%d bytes of %s", len(r.body), r.header.Get("Content-Type"))
	}
	h.engine.backup = func(context.Context, io.Writer) error { return timer.ErrNoLeader }
	h.do("POST", "/v1/backup", "").problem(503, "no_leader")
	failed := timer.SnapshotError{Name: "n2", Path: "/data", Why: "write x: input/output error"}
	h.engine.backup = func(context.Context, io.Writer) error { return fmt.Errorf("shard 3: %w", failed) }
	const told = "shard 3: n2 could not write the snapshot of which a backup is made: write x: input/output error; look at its disk (/data), or drain it, and take the backup again"
	if r := h.do("POST", "/v1/backup", "").problem(503, "unavailable"); !strings.Contains(r.body, told) {
		t.Errorf("it is told %s", r.body)
	}
	h.engine.backup = func(context.Context, io.Writer) error { panic("a fault") }
	h.do("POST", "/v1/backup", "").problem(500, web.InternalError)
	h.do("POST", "/v1/backup", `{"x":1}`).problem(400, "unknown_field")
	h.do("GET", "/v1/backup", "").problem(405, "method_not_allowed")
}

// TestBackupWaitsForItsReader: one that puts the backup into a store reads nothing for a while.
func TestBackupWaitsForItsReader(t *testing.T) {
	h := newHarness(t, func(cfg *Config) { cfg.Limits.WriteTimeout = 100 * time.Millisecond })
	const size = 32 << 20 // more than what is on its way in the system's buffers
	h.engine.backup = func(_ context.Context, to io.Writer) error {
		_, err := to.Write(make([]byte, size))
		return err
	}
	resp, err := http.Post("http://"+h.addr+"/v1/backup", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-time.After(500 * time.Millisecond)
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Errorf("%d bytes of %d, %v", n, size, err)
	}
}

// TestBackupEndsWithTheNode: a node that stops does not wait for a backup's reader that rests.
func TestBackupEndsWithTheNode(t *testing.T) {
	h := newHarness(t)
	h.engine.backup = func(_ context.Context, to io.Writer) error {
		_, err := to.Write(make([]byte, 32<<20))
		return err
	}
	resp, err := http.Post("http://"+h.addr+"/v1/backup", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	<-time.After(200 * time.Millisecond) // until nothing more goes into the system's buffers
	h.stop()
	if err := <-h.done; err != nil {
		t.Error(err)
	}
	h.done <- nil
}

// One backup is taken at a time, and one that nobody reads any more ends.
func TestBackupsAtOnce(t *testing.T) {
	h := newHarness(t)
	begun, ended := make(chan struct{}), make(chan error, 1)
	h.engine.backup = func(ctx context.Context, to io.Writer) error {
		close(begun)
		<-ctx.Done()
		ended <- errors.New("the reader is gone")
		return ctx.Err()
	}
	answered := make(chan int, 1)
	go func() {
		resp, err := http.Post("http://"+h.addr+"/v1/backup", "", nil)
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		defer resp.Body.Close()
		answered <- resp.StatusCode
	}()
	<-begun
	h.do("POST", "/v1/backup", "").problem(503, "overloaded")
	h.server.end() // the node stops
	if status := <-answered; status != 503 {
		t.Errorf("answered %d", status)
	}
	<-ended
}
