package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
	"carillon/internal/backup"
	"carillon/internal/bucket"
	"carillon/internal/vfs"
)

type backupCmd struct {
	File string `arg:"" help:"File to write; - for stdout, s3://bucket/key for a store that speaks S3."`
}

// backupIdle is how long a node that lives may send nothing: it waits at most this long for a
// shard's state, and then reports that it gave up.
const backupIdle = 15 * time.Minute

// Run writes the file under another name until it is whole, so that the last good backup is never
// replaced by half of one.
func (b *backupCmd) Run(ctl *Command, term *terminal.Terminal) error {
	if bucket.Is(b.File) {
		return b.store(ctl, term)
	}
	if info, err := os.Stat(b.File); err == nil && info.IsDir() {
		return terminal.Usagef("%s: is a directory; the name of a file has to follow", b.File)
	}
	if b.File == "-" {
		head, size, err := b.copy(ctl, term.Data())
		if err == nil {
			describe(head, size, term)
		}
		return err
	}
	part := b.File + ".part"
	lock, err := vfs.OS{}.Lock(part)
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("another backup is being written to %s: wait for its end, or name another file", part)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	head, size, err := b.write(ctl, part)
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	if err := (vfs.OS{}).SyncDir(filepath.Dir(b.File)); err != nil { // so that its name outlives a power cut
		return err
	}
	describe(head, size, term)
	return nil
}

// write makes the file of a part that is whole and synced.
func (b *backupCmd) write(ctl *Command, part string) (head backup.Head, size int64, err error) {
	f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, vfs.FilePerm)
	if err != nil {
		return head, 0, err
	}
	if head, size, err = b.copy(ctl, f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return head, 0, err
	}
	return head, size, os.Rename(part, b.File)
}

// copy takes a backup of the node, and verifies it on the way.
func (b *backupCmd) copy(ctl *Command, to io.Writer) (head backup.Head, size int64, err error) {
	from, err := b.ask(context.Background(), ctl)
	if err != nil {
		return head, 0, err
	}
	defer from.Close()
	if head, size, err = backup.Copy(to, from); err != nil {
		err = fmt.Errorf("%w; the backup is of no use, take it again", err)
	}
	return head, size, err
}

// store puts the backup into S3. The store shows nothing of it until it is whole.
func (b *backupCmd) store(ctl *Command, term *terminal.Terminal) error {
	place, err := bucket.Open(b.File)
	if err != nil {
		return terminal.Usagef("%v", err)
	}
	if place.Key() == "" || strings.HasSuffix(place.Key(), "/") {
		return terminal.Usagef("%s: is a bucket or a folder; a key has to follow", b.File)
	}
	var refused error // by the node, before it sent anything
	head, size, err := place.Save(context.Background(), place.Key(), func(ctx context.Context, to io.Writer) error {
		from, err := b.ask(ctx, ctl)
		if err != nil {
			if ctx.Err() == nil { // else the store has refused already, and the request was taken back
				refused = err
			}
			return err
		}
		defer from.Close()
		_, err = io.Copy(to, from)
		return err
	})
	switch {
	case refused != nil:
		return refused
	case errors.Is(err, bucket.ErrUnverified):
		return fmt.Errorf("%w: take it again", err)
	case err != nil:
		return fmt.Errorf("%w; there is no new backup", err)
	}
	describe(head, size, term)
	return nil
}

// ask has the first node begin that takes a connection.
func (b *backupCmd) ask(ctx context.Context, ctl *Command) (body io.ReadCloser, err error) {
	for _, url := range ctl.URL {
		body, err = askNode(ctx, ctl, url)
		if dial, is := errors.AsType[*net.OpError](err); !is || dial.Op != "dial" {
			break
		}
	}
	return body, ctl.explain(err, false)
}

// askNode has one node begin. Its answer ends when the node hangs.
func askNode(ctx context.Context, ctl *Command, url string) (io.ReadCloser, error) {
	node, err := client.New([]string{url}, ctl.options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watched{ctx: ctx, end: cancel, began: time.Now()}
	go w.watch(ctl.Timeout, func() bool {
		ctx, cancel := context.WithTimeout(ctx, ctl.Timeout)
		defer cancel()
		return ctl.lives(ctx, url)
	}, url)
	if w.body, err = node.Backup(ctx); err != nil {
		err = w.why(err)
		cancel(nil)
		return nil, err
	}
	return w, nil
}

func describe(head backup.Head, size int64, term *terminal.Terminal) {
	fmt.Fprintf(term.Err, "carillon: backup of cluster %s, %d shards, as of %s, %d bytes\n", head.ClusterID, head.Shards,
		time.UnixMilli(head.TimeMs).Format(time.RFC3339), size)
	if head.Key == "" {
		fmt.Fprintln(term.Err, "carillon: it is not encrypted, as the cluster has no --secrets-key: payloads, credentials and signing secrets are in it in the clear")
	} else {
		fmt.Fprintln(term.Err, "carillon: it is encrypted; to restore it takes the cluster's --secrets-key file, which is not in it")
	}
}

// watched is an answer that ends when nothing comes because its node hangs. A node that lives may
// need minutes for a shard's state.
type watched struct {
	body io.ReadCloser
	ctx  context.Context
	end  context.CancelCauseFunc

	began time.Time
	moved atomic.Int64 // when something came last: nanoseconds since began
}

// watch asks whether the node lives each time that nothing has come for a while.
func (w *watched) watch(quiet time.Duration, lives func() bool, url string) {
	tick := time.NewTicker(quiet)
	defer tick.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-tick.C:
		}
		switch idle := time.Since(w.began) - time.Duration(w.moved.Load()); {
		case idle >= backupIdle:
			w.end(fmt.Errorf("%s has sent nothing for %s", url, backupIdle))
		case idle >= quiet && !lives():
			w.end(fmt.Errorf("%s hangs: it takes connections and does not answer within %s", url, quiet))
		}
	}
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	w.moved.Store(int64(time.Since(w.began)))
	return n, w.why(err)
}

// why is the reason behind an error: that the node hangs, if it is that.
func (w *watched) why(err error) error {
	if cause := context.Cause(w.ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func (w *watched) Close() error {
	w.end(nil)
	return w.body.Close()
}
