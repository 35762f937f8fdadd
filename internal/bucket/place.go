package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"carillon/internal/backup"
)

// Scheme begins the URL of a Place.
const Scheme = "s3://"

const (
	// partBytes is the memory of an upload. S3 takes 10,000 parts: 160 GB.
	partBytes = 16 << 20
	// idle is how long an upload or a read may make no progress.
	idle = 15 * time.Minute
	// maxTries of one request; the pauses between them grow to a second.
	maxTries = 5
)

// Place is a bucket and a key in it, or the first part of keys.
type Place struct {
	client      *minio.Client
	bucket, key string
}

// Object is a backup in a bucket.
type Object struct {
	Key      string
	Modified time.Time // by the store's clock
}

// Is reports whether a name is a place in S3, and no file.
func Is(name string) bool { return strings.HasPrefix(name, Scheme) }

// Open makes a place of s3://bucket/key. It asks nobody: whether the bucket is there, and the
// credentials do, shows at the first request.
func Open(url string) (*Place, error) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(url, Scheme), "/")
	if !Is(url) || bucket == "" || strings.ContainsAny(bucket, "@:?#") {
		return nil, fmt.Errorf("%q is not s3://bucket/key", withoutSecret(url))
	}
	address, secure, err := endpoint()
	if err != nil {
		return nil, err
	}
	client, err := minio.New(address, &minio.Options{Creds: newCredentials(), Secure: secure, Region: region(), MaxRetries: maxTries})
	if err != nil {
		return nil, err
	}
	return &Place{client, bucket, key}, nil
}

// withoutSecret leaves out what stands before an @, where some would put a password.
func withoutSecret(url string) string {
	if at := strings.LastIndexByte(url, '@'); at >= 0 {
		return "…" + url[at:]
	}
	return url
}

// Key is the place's key.
func (p *Place) Key() string { return p.key }

func (p *Place) String() string { return Scheme + p.bucket + "/" + p.key }

// fault names the place of an error.
func (p *Place) fault(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s%s/%s: %w", Scheme, p.bucket, key, err)
}

// Save has the backup that make writes under the key, and returns its head and size. The backup is
// verified on its way, and read back from the store when it is there: the same bytes. After an
// error the key is as it was, or without a backup. make is to end when its context does.
func (p *Place) Save(ctx context.Context, key string, make func(context.Context, io.Writer) error) (head backup.Head, size int64, err error) {
	ctx, watch := watched(ctx)
	defer watch.stop()
	made, toCheck := io.Pipe()
	checked, toStore := io.Pipe()
	var work sync.WaitGroup
	work.Go(func() { _ = toCheck.CloseWithError(make(ctx, toCheck)) }) // nil is the end
	work.Go(func() {
		var err error
		head, _, err = backup.Copy(toStore, made)
		_ = made.CloseWithError(err)
		_ = toStore.CloseWithError(err)
	})
	sent := &measured{from: checked, sum: sha256.New(), watch: watch}
	_, err = p.client.PutObject(ctx, p.bucket, key, sent, -1, minio.PutObjectOptions{
		PartSize: partBytes, ContentType: "application/octet-stream", SendContentMd5: true,
	})
	if err != nil {
		err = p.fault(key, watch.why(err))
		watch.stop()
		_ = checked.CloseWithError(err)
		_ = made.CloseWithError(err)
	}
	work.Wait()
	if err == nil {
		err = p.check(ctx, key, sent, watch)
	}
	return head, sent.n, err
}

// check reads back what was stored. An object with other bytes is removed.
func (p *Place) check(ctx context.Context, key string, sent *measured, watch *watch) error {
	body, err := p.Read(ctx, key)
	if err != nil {
		return err
	}
	defer body.Close()
	stored := &measured{from: body, sum: sha256.New(), watch: watch}
	if _, err := io.Copy(io.Discard, stored); err != nil {
		return p.fault(key, fmt.Errorf("it is stored, and cannot be read back: %w", watch.why(err)))
	}
	if stored.n != sent.n || !bytes.Equal(stored.sum.Sum(nil), sent.sum.Sum(nil)) {
		return p.fault(key, errors.Join(errors.New("the store has other bytes than it was sent: it is of no use"), p.Remove(ctx, key)))
	}
	return nil
}

// Read opens an object. If another is put in its place meanwhile, reading fails.
func (p *Place) Read(ctx context.Context, key string) (io.ReadSeekCloser, error) {
	o, err := p.client.GetObject(ctx, p.bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, p.fault(key, err)
	}
	if _, err := o.Stat(); err != nil {
		return nil, p.fault(key, errors.Join(err, o.Close()))
	}
	return o, nil
}

// List returns the objects whose keys begin with a prefix.
func (p *Place) List(ctx context.Context, prefix string) (all []Object, err error) {
	for o := range p.client.ListObjectsIter(ctx, p.bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, p.fault(prefix, o.Err)
		}
		all = append(all, Object{o.Key, o.LastModified})
	}
	return all, nil
}

// Remove removes an object; one that is not there is no error.
func (p *Place) Remove(ctx context.Context, key string) error {
	return p.fault(key, p.client.RemoveObject(ctx, p.bucket, key, minio.RemoveObjectOptions{}))
}

// Abandon drops the parts of uploads that were never completed, of keys that begin with a prefix.
// Nobody sees them, and they cost what they weigh.
func (p *Place) Abandon(ctx context.Context, prefix string) error {
	for u := range p.client.ListIncompleteUploads(ctx, p.bucket, prefix, true) {
		if u.Err != nil {
			return p.fault(prefix, u.Err)
		}
		if err := p.client.RemoveIncompleteUpload(ctx, p.bucket, u.Key); err != nil {
			return p.fault(u.Key, err)
		}
	}
	return nil
}

// measured counts and hashes what is read.
type measured struct {
	from  io.Reader
	sum   hash.Hash
	n     int64
	watch *watch
}

// Read implements io.Reader.
func (m *measured) Read(b []byte) (int, error) {
	n, err := m.from.Read(b)
	m.watch.timer.Reset(idle)
	_, _ = m.sum.Write(b[:n])
	m.n += int64(n)
	return n, err
}

// watch ends a context when nothing has moved for idle.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

var errIdle = fmt.Errorf("nothing has moved for %v", idle)

func watched(parent context.Context) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(parent)
	return ctx, &watch{ctx, cancel, time.AfterFunc(idle, func() { cancel(errIdle) })}
}

func (w *watch) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// why is the reason behind an error: of the context, if that has ended.
func (w *watch) why(err error) error {
	if cause := context.Cause(w.ctx); cause != nil {
		return cause
	}
	return err
}
