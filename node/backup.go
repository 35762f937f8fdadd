package node

import (
	"context"
	"errors"
	"fmt"
	"io"

	"carillon/internal/backup"
	"carillon/internal/secret"
	"carillon/shard"
	"carillon/timer"
)

// backupPiece is how much of the meta group's state is written at a time.
const backupPiece = 64 << 10

// Backup writes a backup of the whole cluster: each shard as its leader has it, one after the
// other, then the meta group's state. That comes last, so that it has all topics of the shards'
// timers. After an error nothing is written, unless the writer itself failed; a later failure is in
// the file.
func (c *core) Backup(ctx context.Context, to io.Writer) error {
	keys, err := c.sealingKeys()
	if err != nil {
		return err
	}
	id, shards, _ := c.member.State.Cluster()
	b := &backupRun{to: to, keys: keys, head: backup.Head{
		ClusterID: id, Shards: shards, Level: uint32(c.member.State.Level()), Release: c.p.cfg.Version, TimeMs: c.p.timers.WallMs(),
	}}
	for group := 1; group <= shards && err == nil; group++ {
		if err = c.router.State(ctx, timer.ShardID(group), b); err == nil {
			err = b.file.End()
		}
		if err != nil {
			err = fmt.Errorf("shard %d: %w", group, err)
		}
	}
	if err == nil {
		err = b.meta(ctx, c)
	}
	switch {
	case err == nil:
		return b.file.Close()
	case b.file == nil:
		return err
	}
	c.p.log.Warn("a backup has failed", "error", err)
	b.file.Fail(err)
	return nil
}

// leadsBackups implements backupSource.
func (c *core) leadsBackups() bool { return c.host.Leads(shard.Meta) }

// clusterID implements backupSource.
func (c *core) clusterID() string {
	id, _, _ := c.member.State.Cluster()
	return id
}

// backupRun is one backup. It is a route.StateSink.
type backupRun struct {
	to   io.Writer
	keys *secret.Keys
	head backup.Head
	file *backup.Writer // nil before the first shard is there
}

// Begin implements route.StateSink.
func (b *backupRun) Begin(id timer.ShardID, index, size, hash uint64) (err error) {
	if b.file == nil {
		if b.file, err = backup.NewWriter(b.to, b.head, b.keys, random); err != nil {
			return err
		}
	}
	return b.file.Begin(id, index, size, hash)
}

// Write implements route.StateSink.
func (b *backupRun) Write(p []byte) (int, error) { return b.file.Write(p) }

// meta writes the meta group's state, as of now.
func (b *backupRun) meta(ctx context.Context, c *core) error {
	if err := c.member.CatchUp(ctx); err != nil {
		return fmt.Errorf("topics: %w", err)
	}
	state, err := c.host.SaveMeta()
	if err != nil {
		return fmt.Errorf("topics: %w", err)
	}
	defer state.Abort()
	if err := b.Begin(shard.Meta, 0, 0, state.Hash()); err != nil {
		return err
	}
	for piece, done := []byte(nil), false; !done; {
		piece, done = state.Next(piece[:0], backupPiece)
		if _, err := b.Write(piece); err != nil {
			return err
		}
	}
	if !state.Sound() {
		return errors.New("topics: memory does not hold what it should")
	}
	return b.file.End()
}
