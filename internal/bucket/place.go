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
	// maxIdle is how long a store may take nothing of an upload and give nothing of a read, and how
	// long other calls may take. It takes parts: so 16 MiB in that time, 1.1 Mbit/s, are enough.
	maxIdle = 2 * time.Minute
	// maxMaking is how long the cluster may give nothing of the backup that is uploaded: it gives
	// the state of a large shard only when that is whole on the leader's disk.
	maxMaking = 15 * time.Minute
	// maxTries of one request; the pauses between them grow to a second.
	maxTries = 5
)

// ErrUnverified means that an upload has ended, or may have, and that it is not known what is under
// the key.
var ErrUnverified = errors.New("the backup may be there, unverified")

// errReplaced means that another object is under the key by now.
var errReplaced = errors.New("the object was replaced meanwhile by another")

// errNoObject is what a store's 404 means: to the first question about an object it says no more.
var errNoObject = errors.New("the object does not exist, or its bucket does not")

// Place is a bucket and a key in it, or the first part of keys.
type Place struct {
	client      *minio.Client
	bucket, key string
	idle        time.Duration
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
	return &Place{client, bucket, key, maxIdle}, nil
}

// withoutSecret leaves out what stands before an @, where some would put a password.
func withoutSecret(url string) string {
	if at := strings.LastIndexByte(url, '@'); at >= 0 {
		return "…" + url[at:]
	}
	return url
}

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
// error the key is as it was, or empty; but if the error is ErrUnverified, the upload may have
// ended, and its backup may be there. make is to end when its context does.
func (p *Place) Save(parent context.Context, key string, make func(context.Context, io.Writer) error) (head backup.Head, size int64, err error) {
	ctx, making := watched(parent, maxMaking)
	defer making.stop()
	ctx, watch := watched(ctx, p.idle)
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
	sent := &measured{from: checked, sum: sha256.New(), making: making, watch: watch}
	stored, err := p.client.PutObject(ctx, p.bucket, key, sent, -1, minio.PutObjectOptions{
		PartSize: partBytes, ContentType: "application/octet-stream", SendContentMd5: true,
	})
	if err != nil {
		err = p.fault(key, watch.why(err))
	}
	watch.stop()
	if err != nil {
		_ = checked.CloseWithError(err)
		_ = made.CloseWithError(err)
	}
	work.Wait()
	if err == nil {
		err = p.check(parent, key, sent, stored.ETag)
	} else if sent.whole {
		err = unverified(err) // perhaps only the last answer was lost
	}
	return head, sent.n, err
}

func unverified(err error) error { return fmt.Errorf("%w; %w", err, ErrUnverified) }

// check reads back what was stored under the tag, and removes it if it has other bytes. What
// another process has put under the key since is left alone: its own check verifies it.
func (p *Place) check(ctx context.Context, key string, sent *measured, tag string) error {
	body, err := p.open(ctx, key)
	if err != nil {
		return unverified(err)
	}
	defer body.Close()
	if body.tag != tag {
		return unverified(p.fault(key, errReplaced))
	}
	sum := sha256.New()
	n, err := io.Copy(sum, body)
	if err != nil {
		return unverified(fmt.Errorf("it is stored, and cannot be read back: %w", err))
	}
	if n == sent.n && bytes.Equal(sum.Sum(nil), sent.sum.Sum(nil)) {
		return nil
	}
	err = p.fault(key, errors.New("the store has other bytes than it was sent: it is of no use"))
	if still := p.removeTagged(ctx, key, tag); still != nil {
		return unverified(fmt.Errorf("%w, and was not removed: %w", err, still))
	}
	return err
}

// removeTagged removes an object, unless another is under the key by now. A store offers no removal
// under a condition that all others have too, so one round trip is left for another to be put
// there.
func (p *Place) removeTagged(ctx context.Context, key, tag string) error {
	now, err := p.client.StatObject(ctx, p.bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return err
	}
	if tag == "" || now.ETag != tag {
		return errReplaced
	}
	return p.client.RemoveObject(ctx, p.bucket, key, minio.RemoveObjectOptions{})
}

// Read opens an object. If another is put in its place meanwhile, or nothing comes for long,
// reading fails.
func (p *Place) Read(ctx context.Context, key string) (io.ReadSeekCloser, error) {
	o, err := p.open(ctx, key)
	if err != nil {
		return nil, err // no object, and no interface that has none
	}
	return o, nil
}

// object is one that is read. Its watch runs only during calls: a reader may take its time.
type object struct {
	place *Place
	key   string
	tag   string // the store's, of these bytes
	from  *minio.Object
	watch *watch
}

func (p *Place) open(ctx context.Context, key string) (*object, error) {
	ctx, watch := watched(ctx, p.idle)
	from, err := p.client.GetObject(ctx, p.bucket, key, minio.GetObjectOptions{})
	if err != nil {
		watch.stop()
		return nil, p.fault(key, err)
	}
	o := &object{place: p, key: key, from: from, watch: watch}
	info, err := from.Stat()
	if o.tag, err = info.ETag, o.after(err); err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return o, nil
}

// after ends the watch over a call, and explains its error.
func (o *object) after(err error) error {
	o.watch.timer.Stop()
	switch {
	case err == nil || err == io.EOF: //nolint:errorlint // as io.Reader has it
		return err
	case minio.ToErrorResponse(err).Code == minio.PreconditionFailed:
		err = errReplaced
	case minio.ToErrorResponse(err).Code == minio.NoSuchKey:
		err = errNoObject
	}
	return o.place.fault(o.key, o.watch.why(err))
}

func (o *object) Read(b []byte) (int, error) {
	o.watch.moved()
	n, err := o.from.Read(b)
	return n, o.after(err)
}

func (o *object) Seek(offset int64, whence int) (int64, error) {
	o.watch.moved()
	n, err := o.from.Seek(offset, whence)
	return n, o.after(err)
}

func (o *object) Close() error {
	o.watch.stop()
	return o.from.Close()
}

// List returns the objects whose keys begin with a prefix.
func (p *Place) List(ctx context.Context, prefix string) (all []Object, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.idle)
	defer cancel()
	for o := range p.client.ListObjectsIter(ctx, p.bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, p.fault(prefix, o.Err)
		}
		all = append(all, Object{o.Key, o.LastModified})
	}
	return all, p.fault(prefix, ctx.Err())
}

// Remove removes an object; one that is not there is no error.
func (p *Place) Remove(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, p.idle)
	defer cancel()
	return p.fault(key, p.client.RemoveObject(ctx, p.bucket, key, minio.RemoveObjectOptions{}))
}

// Abandon drops the parts of uploads that were never completed, of keys that begin with a prefix.
// Nobody sees them, and they cost what they weigh.
func (p *Place) Abandon(ctx context.Context, prefix string) error {
	ctx, cancel := context.WithTimeout(ctx, p.idle)
	defer cancel()
	for u := range p.client.ListIncompleteUploads(ctx, p.bucket, prefix, true) {
		if u.Err != nil {
			return p.fault(prefix, u.Err)
		}
		if err := p.client.RemoveIncompleteUpload(ctx, p.bucket, u.Key); err != nil {
			return p.fault(u.Key, err)
		}
	}
	return p.fault(prefix, ctx.Err())
}

// measured counts and hashes what is read. The store is not watched during a read, and who is read
// from only then.
type measured struct {
	from   io.Reader
	sum    hash.Hash
	n      int64
	whole  bool // it was read to its end
	making *watch
	watch  *watch
}

func (m *measured) Read(b []byte) (int, error) {
	m.watch.timer.Stop()
	m.making.moved()
	n, err := m.from.Read(b)
	m.making.timer.Stop()
	m.watch.moved()
	_, _ = m.sum.Write(b[:n])
	m.n += int64(n)
	m.whole = m.whole || errors.Is(err, io.EOF)
	return n, err
}

// watch ends a context when nothing has moved for idle.
type watch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	idle   time.Duration
	timer  *time.Timer
}

func watched(parent context.Context, idle time.Duration) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(parent)
	return ctx, &watch{ctx, cancel, idle, time.AfterFunc(idle, func() { cancel(fmt.Errorf("nothing has moved for %v", idle)) })}
}

func (w *watch) moved() { w.timer.Reset(w.idle) }

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
