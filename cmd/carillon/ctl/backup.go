package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"carillon/cmd/carillon/terminal"
	"carillon/internal/backup"
	"carillon/internal/bucket"
	"carillon/internal/vfs"
)

type backupCmd struct {
	File string `arg:"" help:"File to write; - for stdout, s3://bucket/key for a store that speaks S3."`
}

// backupIdle is how long a node may send nothing: it waits at most this long for a shard's state,
// and then reports that it gave up.
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
		return b.copy(ctl, term.Data(), term)
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
	if err := b.write(ctl, part, term); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return vfs.OS{}.SyncDir(filepath.Dir(b.File)) // so that its name outlives a power cut
}

// write makes the file of a part that is whole and synced.
func (b *backupCmd) write(ctl *Command, part string, term *terminal.Terminal) error {
	f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, vfs.FilePerm)
	if err != nil {
		return err
	}
	if err = b.copy(ctl, f, term); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(part, b.File)
}

// copy takes a backup of the node.
func (b *backupCmd) copy(ctl *Command, to io.Writer, term *terminal.Terminal) error {
	from, err := b.ask(context.Background(), ctl)
	if err != nil {
		return err
	}
	defer from.Close()
	return b.take(from, to, term)
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

// ask has the node begin. Its answer ends when nothing has come for backupIdle.
func (b *backupCmd) ask(ctx context.Context, ctl *Command) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	body, err := ctl.client.Backup(ctx)
	if err != nil {
		cancel()
		return nil, ctl.explain(err, false)
	}
	return &watched{body: body, idle: time.AfterFunc(backupIdle, cancel), end: cancel}, nil
}

// take copies the backup, verifies it on the way, and describes it.
func (b *backupCmd) take(from io.Reader, to io.Writer, term *terminal.Terminal) error {
	head, size, err := backup.Copy(to, from)
	if err != nil {
		return fmt.Errorf("%w; the backup is of no use, take it again", err)
	}
	describe(head, size, term)
	return nil
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

// watched is an answer that ends when nothing comes.
type watched struct {
	body io.ReadCloser
	idle *time.Timer
	end  context.CancelFunc
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	w.idle.Reset(backupIdle)
	return n, err
}

func (w *watched) Close() error {
	w.idle.Stop()
	w.end()
	return w.body.Close()
}
