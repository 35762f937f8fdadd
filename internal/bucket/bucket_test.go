package bucket

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/backup"
	"carillon/test/s3server"
	"carillon/test/testkit"
)

// sample writes a backup whose state has so many bytes. Each seed gives another.
func sample(size int, seed byte) func(context.Context, io.Writer) error {
	return func(_ context.Context, to io.Writer) error {
		w, err := backup.NewWriter(to, backup.Head{ClusterID: "c1", Shards: 1}, nil, nil)
		if err != nil {
			return err
		}
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(i>>8) ^ byte(i) ^ seed
		}
		if err := w.Begin(1, 1, uint64(size), 0); err != nil {
			return err
		}
		if _, err := w.Write(body); err != nil {
			return err
		}
		return errors.Join(w.End(), w.Close())
	}
}

func bytesOf(t *testing.T, make func(context.Context, io.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	testkit.Must(t, make(t.Context(), &b))
	return b.Bytes()
}

func open(t *testing.T) *Place {
	t.Helper()
	p, err := Open(Scheme + s3server.Bucket + "/nightly/")
	testkit.Must(t, err)
	return p
}

// content is the object under a key; nil: there is none.
func content(t *testing.T, p *Place, key string) []byte {
	t.Helper()
	body, err := p.Read(t.Context(), key)
	if err != nil {
		if !strings.Contains(err.Error(), "does not exist") {
			t.Fatal(err)
		}
		return nil
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	testkit.Must(t, err)
	return b
}

// TestSave: backups of one part and of several come back byte by byte, and are listed and removed.
func TestSave(t *testing.T) {
	s3server.Start(t)
	p := open(t)
	for key, size := range map[string]int{"nightly/small": 10, "nightly/of parts": 2*partBytes + 12345} {
		want := bytesOf(t, sample(size, 1))
		head, n, err := p.Save(t.Context(), key, sample(size, 1))
		if err != nil || n != int64(len(want)) || head.ClusterID != "c1" {
			t.Fatalf("%s: %d bytes of %d, head %+v: %v", key, n, len(want), head, err)
		}
		if !bytes.Equal(content(t, p, key), want) {
			t.Errorf("%s: other bytes came back", key)
		}
	}
	if keys := keysOf(t, p); !slices.Equal(keys, []string{"nightly/of parts", "nightly/small"}) {
		t.Errorf("listed: %q", keys)
	}
	for range 2 { // the second finds nothing
		testkit.Must(t, p.Remove(t.Context(), "nightly/small"))
	}
	if keys := keysOf(t, p); !slices.Equal(keys, []string{"nightly/of parts"}) {
		t.Errorf("left: %q", keys)
	}
}

func keysOf(t *testing.T, p *Place) (keys []string) {
	t.Helper()
	all, err := p.List(t.Context(), p.Key())
	testkit.Must(t, err)
	for _, o := range all {
		if o.Modified.IsZero() {
			t.Errorf("%s has no time", o.Key)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

// TestPartOfABackupIsNone: a backup that breaks off, that its node has given up, or that somebody
// has changed on the way, leaves the key as it was: without an object, or with the last good one.
func TestPartOfABackupIsNone(t *testing.T) {
	s3server.Start(t)
	p := open(t)
	const size = partBytes + 100
	whole := bytesOf(t, sample(size, 1))
	good := bytesOf(t, sample(100, 2))
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	broke := errors.New("the node went away")
	for name, make := range map[string]func(context.Context, io.Writer) error{
		"cut":     func(_ context.Context, to io.Writer) error { _, err := to.Write(whole[:len(whole)-9]); return err },
		"empty":   func(context.Context, io.Writer) error { return nil },
		"changed": func(_ context.Context, to io.Writer) error { _, err := to.Write(flipped); return err },
		"broken": func(_ context.Context, to io.Writer) error {
			_, err := to.Write(whole[:len(whole)-1])
			return errors.Join(err, broke)
		},
		"given up": func(_ context.Context, to io.Writer) error {
			w, err := backup.NewWriter(to, backup.Head{ClusterID: "c1"}, nil, nil)
			if err == nil {
				w.Fail(broke)
			}
			return err
		},
		"more": func(_ context.Context, to io.Writer) error {
			_, err := to.Write(append(bytes.Clone(whole), 0))
			return err
		},
	} {
		for _, before := range [][]byte{nil, good} {
			key := "nightly/" + name
			if before != nil {
				if _, _, err := p.Save(t.Context(), key, sample(100, 2)); err != nil {
					t.Fatal(err)
				}
			}
			_, _, err := p.Save(t.Context(), key, make)
			if err == nil || errors.Is(err, ErrUnverified) || name == "broken" && !errors.Is(err, broke) {
				t.Errorf("%s: %v", name, err)
			}
			if got := content(t, p, key); !bytes.Equal(got, before) {
				t.Errorf("%s: %d bytes are under the key, %d were", name, len(got), len(before))
			}
		}
	}
}

// TestStoredBytesAreReadBack: a store that gives other bytes than it was sent has no backup.
func TestStoredBytesAreReadBack(t *testing.T) {
	behind := s3server.Start(t)
	through(t, behind, func(resp *http.Response) error {
		if resp.Request.Method == http.MethodGet && strings.HasSuffix(resp.Request.URL.Path, "/spoilt") {
			return spoil(resp)
		}
		return nil
	}, nil)
	p := open(t)
	if _, _, err := p.Save(t.Context(), "nightly/spoilt", sample(1000, 1)); err == nil || !strings.Contains(err.Error(), "other bytes") {
		t.Fatalf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(behind.Dir, "nightly", "spoilt")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the object is still there: %v", err)
	}
	if _, _, err := p.Save(t.Context(), "nightly/sound", sample(1000, 1)); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// spoil changes a bit of an answer's body.
func spoil(resp *http.Response) error {
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	body[len(body)/2] ^= 1
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// TestReplacedMeanwhile: two that save under one key, as an old leader and a new one do, leave the
// backup of the later. The earlier fails, whenever it is replaced, and removes nothing.
func TestReplacedMeanwhile(t *testing.T) {
	for name, tt := range map[string]struct {
		method string // the answer to this is held back while the other saves
		spoil  bool   // the earlier reads back other bytes than it has sent
	}{"before it is found": {http.MethodPost, false}, "before it is read": {http.MethodHead, false}, "after it was read": {http.MethodGet, true}} {
		t.Run(name, func(t *testing.T) {
			behind := s3server.Start(t)
			later := open(t)
			var once sync.Once
			through(t, behind, func(resp *http.Response) error {
				r := resp.Request
				if r.Method != tt.method || r.Method == http.MethodPost && !r.URL.Query().Has("uploadId") || resp.StatusCode != http.StatusOK {
					return nil
				}
				once.Do(func() {
					if _, _, err := later.Save(t.Context(), "nightly/a", sample(1000, 2)); err != nil {
						t.Error(err)
					}
				})
				if tt.spoil {
					return spoil(resp)
				}
				return nil
			}, nil)
			_, _, err := open(t).Save(t.Context(), "nightly/a", sample(1000, 1))
			if !errors.Is(err, ErrUnverified) || !strings.Contains(err.Error(), "replaced meanwhile") {
				t.Errorf("%v", err)
			}
			if got := content(t, later, "nightly/a"); !bytes.Equal(got, bytesOf(t, sample(1000, 2))) {
				t.Errorf("%d bytes are there, and not those of the later", len(got))
			}
		})
	}
}

// TestSilentList: a store that stops in the middle of a list ends the call: the schedule waits for
// it.
func TestSilentList(t *testing.T) {
	through(t, s3server.Start(t), func(resp *http.Response) error {
		if resp.Request.Method == http.MethodGet {
			resp.ContentLength = -1
			resp.Header.Del("Content-Length")
			resp.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(io.LimitReader(resp.Body, 10), untilDone{resp.Request.Context()}), resp.Body}
		}
		return nil
	}, nil)
	p := open(t)
	p.idle = 2 * time.Second
	if _, err := p.List(t.Context(), "nightly/"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("listed: %v", err)
	}
	if err := p.Abandon(t.Context(), "nightly/"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("abandoned: %v", err)
	}
}

// TestSilentStore: a store that stops in the middle of an object ends the reading of it, and the
// backup that is read back is unverified. A reader that takes its time is not ended.
func TestSilentStore(t *testing.T) {
	behind := s3server.Start(t)
	const size = 100_000
	through(t, behind, func(resp *http.Response) error {
		if r := resp.Request; r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/silent") {
			resp.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(io.LimitReader(resp.Body, 1000), untilDone{r.Context()}), resp.Body}
		}
		return nil
	}, nil)
	p := open(t)
	p.idle = 2 * time.Second
	if _, _, err := p.Save(t.Context(), "nightly/silent", sample(size, 1)); !errors.Is(err, ErrUnverified) || !strings.Contains(err.Error(), "nothing has moved for 2s") {
		t.Errorf("saved: %v", err)
	}
	body, err := p.Read(t.Context(), "nightly/silent")
	testkit.Must(t, err)
	defer body.Close()
	if _, err := io.ReadAll(body); err == nil || !strings.Contains(err.Error(), "/nightly/silent: nothing has moved for 2s") {
		t.Errorf("read: %v", err)
	}

	p.idle = time.Minute // a busy machine is not silent
	if _, _, err := p.Save(t.Context(), "nightly/slow", sample(size, 1)); err != nil {
		t.Fatal(err)
	}
	slow, err := p.open(t.Context(), "nightly/slow")
	testkit.Must(t, err)
	defer slow.Close()
	for range 2 {
		if _, err := io.CopyN(io.Discard, slow, 1000); err != nil {
			t.Fatal(err)
		}
		if slow.watch.timer.Stop() {
			t.Error("the watch runs between two calls")
		}
		if _, err := slow.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
	}
}

// after gives a byte after that time.
type after time.Duration

func (a after) Read(b []byte) (int, error) {
	time.Sleep(time.Duration(a))
	return 1, nil
}

// TestUploadIsGivenUp when the store hangs for two minutes. The cluster may take longer for what is
// uploaded: the state of a large shard is made whole first.
func TestUploadIsGivenUp(t *testing.T) {
	for _, test := range []struct {
		making, storing time.Duration
		err             string
	}{
		{10 * time.Minute, 110 * time.Second, ""},
		{time.Second, 3 * time.Minute, "nothing has moved for 2m0s"},
		{16 * time.Minute, time.Second, "nothing has moved for 15m0s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, making := watched(t.Context(), maxMaking)
			ctx, watch := watched(ctx, maxIdle)
			defer making.stop()
			defer watch.stop()
			m := &measured{from: after(test.making), sum: sha256.New(), making: making, watch: watch}
			for range 3 {
				_, _ = m.Read(make([]byte, 1))
				time.Sleep(test.storing)
			}
			err := ""
			if ctx.Err() != nil {
				err = watch.why(nil).Error()
			}
			if err != test.err {
				t.Errorf("made in %v, stored in %v: %q, want %q", test.making, test.storing, err, test.err)
			}
		})
	}
}

// untilDone has no bytes, and ends with its context.
type untilDone struct{ ctx context.Context }

func (u untilDone) Read([]byte) (int, error) {
	<-u.ctx.Done()
	return 0, u.ctx.Err()
}

// TestAbandon: the parts of an upload that was cut off are dropped, and those of others are not.
func TestAbandon(t *testing.T) {
	behind := s3server.Start(t)
	through(t, behind, nil, func(r *http.Request) bool { // an upload is neither completed nor taken back
		return r.Method == http.MethodDelete || r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
	})
	p := open(t)
	for _, key := range []string{"nightly/a", "other/b"} {
		if _, _, err := p.Save(t.Context(), key, sample(1000, 1)); !errors.Is(err, ErrUnverified) {
			t.Fatalf("%s: %v", key, err) // that of a lost answer looks the same
		}
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", behind.URL)
	p = open(t)
	if n := incomplete(t, p); n != 2 {
		t.Fatalf("%d uploads", n)
	}
	testkit.Must(t, p.Abandon(t.Context(), "nightly/"))
	if n := incomplete(t, p); n != 1 {
		t.Errorf("%d uploads are left, want that of another prefix", n)
	}
}

func incomplete(t *testing.T, p *Place) (n int) {
	t.Helper()
	for u := range p.client.ListIncompleteUploads(t.Context(), p.bucket, "", true) {
		if u.Err != nil {
			t.Fatal(u.Err)
		}
		n++
	}
	return n
}

// through puts a proxy before the server: answer changes answers, and requests that refuse chooses
// get 500.
func through(t *testing.T, s *s3server.Server, answer func(*http.Response) error, refuse func(*http.Request) bool) {
	t.Helper()
	to, err := url.Parse(s.URL)
	testkit.Must(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = answer
	proxy.FlushInterval = -1 // at once
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse != nil && refuse(r) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	t.Setenv("AWS_ENDPOINT_URL_S3", front.URL)
}

// TestCredentials: they come from the variables, from the files that variables name, and from AWS's
// own file; a file that cannot be read is a fault, and no fault shows a secret.
func TestCredentials(t *testing.T) {
	s3server.Start(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	profiles := file("credentials", "[default]\naws_access_key_id = x\naws_secret_access_key = y\n[backup]\naws_access_key_id = "+s3server.Key+"\naws_secret_access_key = "+s3server.Secret+"\n")
	key, secret := file("key", s3server.Key+"\n"), file("secret", s3server.Secret+"\n")
	for name, tt := range map[string]struct {
		env  map[string]string
		want string
	}{
		"variables": {map[string]string{"AWS_ACCESS_KEY_ID": s3server.Key, "AWS_SECRET_ACCESS_KEY": s3server.Secret}, ""},
		"files":     {map[string]string{"AWS_ACCESS_KEY_ID_FILE": key, "AWS_SECRET_ACCESS_KEY_FILE": secret}, ""},
		"both":      {map[string]string{"AWS_ACCESS_KEY_ID": s3server.Key, "AWS_SECRET_ACCESS_KEY_FILE": secret}, ""},
		"profile":   {map[string]string{"AWS_SHARED_CREDENTIALS_FILE": profiles, "AWS_PROFILE": "backup"}, ""},
		"no file":   {map[string]string{"AWS_ACCESS_KEY_ID_FILE": filepath.Join(dir, "none")}, "AWS_ACCESS_KEY_ID_FILE: "},
		"wrong":     {map[string]string{"AWS_ACCESS_KEY_ID": s3server.Key, "AWS_SECRET_ACCESS_KEY": "wrong" + s3server.Secret}, "signature"},
		"none":      {nil, "no credentials for S3"},
		"half":      {map[string]string{"AWS_SECRET_ACCESS_KEY": s3server.Secret}, "(the environment: only one of the two keys is set; the profile: "},
		"file gone": {map[string]string{"AWS_SHARED_CREDENTIALS_FILE": filepath.Join(dir, "gone")}, "/gone: no such file"},
		"profile?":  {map[string]string{"AWS_SHARED_CREDENTIALS_FILE": profiles, "AWS_PROFILE": "bakcup"}, "nightly/a: the profile: section \"bakcup\" does not exist"},
		"no equals": {map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file("equals", "[default]\n"+s3server.Secret+"\n")}, "the profile: key-value delimiter not found"},
		"no quote":  {map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file("quote", "[default]\n`"+s3server.Secret+"\n")}, "the profile: missing closing key quote"},
		"no name":   {map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file("name", "[default]\n="+s3server.Secret+"\n")}, "the profile: empty key name"},
		"no end":    {map[string]string{"AWS_SHARED_CREDENTIALS_FILE": file("end", "["+s3server.Secret+"\n")}, "the profile: unclosed section"},
		"role": {map[string]string{
			"AWS_EC2_METADATA_DISABLED": "false", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/?token=" + s3server.Secret,
		}, "the machine's role: dial tcp 127.0.0.1:1: "},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"} {
				t.Setenv(v, tt.env[v])
			}
			for _, v := range []string{"AWS_ACCESS_KEY_ID_FILE", "AWS_SECRET_ACCESS_KEY_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
				t.Setenv(v, tt.env[v])
			}
			t.Setenv("AWS_EC2_METADATA_DISABLED", cmp.Or(tt.env["AWS_EC2_METADATA_DISABLED"], "true"))
			t.Setenv("HOME", dir)
			_, _, err := open(t).Save(t.Context(), "nightly/a", sample(10, 1))
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), s3server.Secret) {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
}

// TestOpen: only s3://bucket/key is a place, and a fault never repeats what may be a password.
func TestOpen(t *testing.T) {
	for _, bad := range []string{"", "s3:/b/k", "s3://", "s3:///k", "http://b/k", "s3://user:pw@b/k", "s3://b:9000/k"} {
		if p, err := Open(bad); err == nil || strings.Contains(err.Error(), "pw") {
			t.Errorf("%q: %v, %v", bad, p, err)
		}
	}
	for url, key := range map[string]string{"s3://bucket": "", "s3://bucket/": "", "s3://bucket/a/b": "a/b", "s3://bucket/a/": "a/"} {
		if p, err := Open(url); err != nil || p.Key() != key || p.bucket != "bucket" {
			t.Errorf("%s: %+v, %v", url, p, err)
		}
	}
	for _, bad := range []string{"minio:9000", "ftp://minio", "http://", "http://user:pw@minio", "http://minio/path"} {
		for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} { // the second counts where both are set
			t.Setenv(name, bad)
			if _, err := Open("s3://bucket/key"); err == nil || strings.Contains(err.Error(), "pw") || !strings.HasPrefix(err.Error(), name+": ") {
				t.Errorf("%s: %v", bad, err)
			}
		}
		t.Setenv("AWS_ENDPOINT_URL_S3", "")
	}
}
