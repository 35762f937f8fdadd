package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"carillon/cmd/carillon/terminal"
	"carillon/internal/backup"
)

type backupCmd struct {
	File string `arg:"" help:"File to write; - for stdout."`
}

func (*backupCmd) Examples() string {
	return `carillon ctl backup carillon.backup
carillon ctl backup - | ssh vault 'cat > carillon.backup'`
}

// backupIdle is how long a node may send nothing: it waits at most this long for a shard's state, and
// then reports that it gave up.
const backupIdle = 15 * time.Minute

// Run writes the file under another name until it is whole, so that the last good backup is never
// replaced by half of one.
func (b *backupCmd) Run(ctl *Command, term *terminal.Terminal) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	body, err := ctl.client.Backup(ctx)
	if err != nil {
		return ctl.explain(err, false)
	}
	defer body.Close()
	idle := time.AfterFunc(backupIdle, cancel)
	defer idle.Stop()
	from := &watched{from: body, read: func() { idle.Reset(backupIdle) }}
	if b.File == "-" {
		return b.take(from, term.Data(), term)
	}
	part := b.File + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = b.take(from, f, term); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(part, b.File)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part))
	}
	return syncDir(filepath.Dir(b.File))
}

// take copies the backup, verifies it on the way, and describes it.
func (b *backupCmd) take(from io.Reader, to io.Writer, term *terminal.Terminal) error {
	size := &counter{to: to}
	r, err := backup.NewReader(io.TeeReader(from, size))
	if err == nil {
		err = r.Verify()
	}
	if err != nil {
		return fmt.Errorf("%w; the backup is of no use, take it again", err)
	}
	head := r.Head()
	fmt.Fprintf(term.Err, "carillon: backup of cluster %s, %d shards, as of %s, %d bytes\n", head.ClusterID, head.Shards,
		time.UnixMilli(head.TimeMs).UTC().Format(time.RFC3339), size.n)
	if head.Key == "" {
		fmt.Fprintln(term.Err, "carillon: it is not encrypted, as the cluster has no --secrets-key: payloads, credentials and signing secrets are in it in the clear")
	} else {
		fmt.Fprintln(term.Err, "carillon: it is encrypted; to restore it takes the cluster's --secrets-key file, which is not in it")
	}
	return nil
}

// watched reports each read.
type watched struct {
	from io.Reader
	read func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.from.Read(p)
	w.read()
	return n, err
}

// counter counts the written bytes.
type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}

// syncDir makes a name in a directory outlive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
