package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"carillon/test/s3server"
	"carillon/test/testkit"
)

// TestBackupToS3: a backup goes straight into a bucket and is restored from there. An object that
// was changed or cut in the bucket is refused, and nothing is written.
func TestBackupToS3(t *testing.T) {
	store := s3server.Start(t)
	data := filepath.Join(t.TempDir(), "data")
	lost, url := serve(t, "--data", data)
	ctlSays(t, url, "add", "soon", "--id", "a", "--delay", "1h", "--callback", "http://127.0.0.1:1/")
	const place = "s3://" + s3server.Bucket + "/daily/carillon.backup"
	got := carillon(t, "", nil, "ctl", "--url", url, "backup", place)
	if got.code != exitOK || !strings.Contains(got.err, "4 shards, as of ") || !strings.Contains(got.err, "not encrypted") {
		t.Fatalf("backup: %+v", got)
	}
	to, err := neturl.Parse(store.URL)
	testkit.Must(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	blind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer blind.Close()
	got = carillon(t, "", []string{"AWS_ENDPOINT_URL_S3=" + blind.URL}, "ctl", "--url", url, "backup", place+".unread")
	if got.code != exitFailure || !strings.Contains(got.err, "the backup may be there, unverified: take it again") || strings.Contains(got.err, "no new backup") {
		t.Errorf("backup that cannot be read back: %+v", got)
	}
	ctlSays(t, url, "cancel", "soon", "a")
	if got := carillon(t, "", nil, "ctl", "--url", "http://127.0.0.1:1", "backup", place); got.code != exitFailure || !strings.Contains(got.err, "127.0.0.1:1") {
		t.Errorf("backup of a node that is not there: %+v", got)
	}
	for _, bad := range []string{"s3://" + s3server.Bucket, "s3://" + s3server.Bucket + "/", "s3://" + s3server.Bucket + "/folder/", "s3://"} {
		if got := carillon(t, "", nil, "ctl", "--url", url, "backup", bad); got.code != exitUsage {
			t.Errorf("%s: %+v", bad, got)
		}
	}
	got = carillon(t, "", []string{"AWS_SECRET_ACCESS_KEY=wrong"}, "ctl", "--url", url, "backup", place)
	if got.code != exitFailure || !strings.Contains(got.err, "there is no new backup") {
		t.Errorf("backup with a wrong key: %+v", got)
	}
	lost.signal(t, syscall.SIGKILL)
	lost.wait(t)

	restored := filepath.Join(t.TempDir(), "restored")
	object := filepath.Join(store.Dir, "daily", "carillon.backup")
	whole := testkit.File(t, object)
	restore := func() result { return carillon(t, "", nil, "restore", "--from", place, "--data", restored) }
	for name, content := range map[string][]byte{"cut": whole[:len(whole)-1], "changed": append([]byte{1}, whole[1:]...)} {
		testkit.Must(t, os.WriteFile(object, content, 0o600))
		if got := restore(); got.code != exitFailure || !strings.Contains(got.err, "nothing was restored") {
			t.Errorf("%s: %+v", name, got)
		}
		if _, err := os.Stat(restored); err == nil {
			t.Errorf("%s: something was written", name)
		}
	}
	testkit.Must(t, os.WriteFile(object, whole, 0o600))
	if got := restore(); got.code != exitOK || !strings.Contains(got.out, "topics 1, timers scheduled 1,") {
		t.Fatalf("restore: %+v", got)
	}
	_, url = serve(t, "--data", restored)
	if out := ctlSays(t, url, "list", "soon"); !strings.Contains(out, "a   scheduled") {
		t.Errorf("soon:\n%s", out)
	}
	if got := carillon(t, "", nil, "restore", "--from", place+".missing", "--data", restored+"2"); got.code != exitFailure || !strings.Contains(got.err, "does not exist") {
		t.Errorf("of no object: %+v", got)
	}
	if got := carillon(t, "", nil, "restore", "--from", "s3://no-bucket/a", "--data", restored+"2"); got.code != exitFailure || !strings.Contains(got.err, "s3://no-bucket/a: the object does not exist, or its bucket does not; nothing") {
		t.Errorf("of no bucket: %+v", got)
	}
}

// TestScheduledBackup: a node puts its first backup into the bucket as soon as it has started, with
// credentials from files, and shows them nowhere; one whose store refuses it says so.
func TestScheduledBackup(t *testing.T) {
	store := s3server.Start(t)
	dir := t.TempDir()
	for name, content := range map[string]string{"key": s3server.Key, "secret": s3server.Secret} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o600))
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_ACCESS_KEY_ID_FILE", filepath.Join(dir, "key"))
	t.Setenv("AWS_SECRET_ACCESS_KEY_FILE", filepath.Join(dir, "secret"))
	metrics := func(url, part string) string {
		t.Helper()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(deadline); time.Now().Before(end); <-tick.C {
			resp, err := http.Get(url + "/metrics")
			testkit.Must(t, err)
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			testkit.Must(t, err)
			if strings.Contains(string(body), part) {
				return string(body)
			}
		}
		t.Fatalf("the metrics never had %q", part)
		return ""
	}
	args := []string{"--backup-to", "s3://" + s3server.Bucket + "/n", "--backup-every", "0 0 1 * *", "--log-level", "info"}
	p, url := serve(t, append(args, "--data", filepath.Join(dir, "data"))...)
	if body := metrics(url, "\ncarillon_backup_last_success_timestamp_seconds "); !strings.Contains(body, "\ncarillon_backup_failures_total 0\n") || strings.Contains(body, s3server.Secret) {
		t.Errorf("metrics:\n%s", body)
	}
	files, err := filepath.Glob(filepath.Join(store.Dir, "n", "carillon-*01T000000Z.backup"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	if got := carillon(t, "", nil, "ctl", "--url", url, "doctor"); !strings.Contains(got.out, "backups  ") || !strings.Contains(got.out, "the last one was made ") {
		t.Errorf("doctor: %+v", got)
	}
	p.signal(t, syscall.SIGTERM)
	p.wait(t)
	if said := p.err.String(); !strings.Contains(said, "a scheduled backup is made") || strings.Contains(said, s3server.Secret) || strings.Contains(said, s3server.Key) {
		t.Errorf("the log:\n%s", said)
	}

	t.Setenv("AWS_SECRET_ACCESS_KEY_FILE", filepath.Join(dir, "key"))
	p, url = serve(t, append(args, "--data", filepath.Join(dir, "other"))...)
	metrics(url, "\ncarillon_backup_failures_total 1\n")
	p.signal(t, syscall.SIGTERM)
	p.wait(t)
	if said := p.err.String(); !strings.Contains(said, "a scheduled backup has failed") || strings.Contains(said, s3server.Key) {
		t.Errorf("the log:\n%s", said)
	}
}
