package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"carillon/internal/backup"
	"carillon/internal/secret"
	"carillon/shard"
	"carillon/timer"
)

// backupPiece is how much of the meta group's state is written at a time.
const backupPiece = 64 << 10

// dividedPoll is how often a backup looks whether a shard has been divided.
const dividedPoll = 50 * time.Millisecond

// Backup writes a backup of the whole cluster: each shard as its leader has it, one after the
// other, then the meta group's state. That comes last, so that it has all topics of the shards'
// timers. After an error nothing is written, unless the writer itself failed; a later failure is in
// the file.
func (c *core) Backup(ctx context.Context, to io.Writer) error {
	keys, err := c.sealingKeys()
	if err == nil {
		err = c.member.CatchUp(ctx)
	}
	if err != nil {
		return err
	}
	id, _, _ := c.member.State.Cluster()
	shards := c.member.State.Shards()
	b := &backupRun{to: to, keys: keys, head: backup.Head{
		ClusterID: id, Shards: shards.Now, Level: uint32(c.member.State.Level()), Release: c.p.cfg.Version, TimeMs: c.p.timers.WallMs(),
	}}
	for group := shards.Parents; group >= 1 && err == nil; group-- {
		err = b.shard(ctx, c, timer.ShardID(group), shards.Parents)
	}
	if _, again := c.member.State.Row(timer.ShardID(2*shards.Parents + 1)); err == nil && again {
		err = errors.New("the shards were divided twice meanwhile; make it once more")
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
	unwritten := b.file.Fail(err)
	if unwritten == nil || !errors.Is(err, unwritten) { // else no shard is to blame, and the caller knows
		c.p.log.Warn("a backup has failed", "error", err)
	}
	return unwritten
}

// shard writes the state of a shard, and that of its child if it has been divided in a cluster of
// so many. What has not moved to the child is in the shard's. Shards are divided in order, and are
// written from the last to the first: so those whose children are written are the first ones, as in
// any cluster that grows.
func (b *backupRun) shard(ctx context.Context, c *core, id timer.ShardID, parents int) error {
	child := id + timer.ShardID(parents)
	for {
		divided, err := c.divided(ctx, child)
		if err != nil {
			return err
		}
		if divided {
			if err := b.state(ctx, c, child); err != nil {
				return err
			}
		}
		if err := c.router.State(ctx, id, b); err != nil {
			return ofShard(id, err)
		}
		now, err := c.divided(ctx, child)
		switch {
		case err != nil:
			return err
		case now == divided:
			if err = b.file.End(); err != nil {
				err = fmt.Errorf("shard %d: %w", id, err)
			}
			return err
		}
		// It may have been divided before its state was taken: the next one makes that void.
	}
}

func (b *backupRun) state(ctx context.Context, c *core, id timer.ShardID) error {
	err := c.router.State(ctx, id, b)
	if err == nil {
		err = b.file.End()
	}
	if err != nil {
		return ofShard(id, err)
	}
	return nil
}

// ofShard is the error of a shard's part.
func ofShard(id timer.ShardID, err error) error {
	if errors.Is(err, timer.ErrLowDisk) {
		return fmt.Errorf("shard %d: its leader has no room for the snapshot of which a backup is made: %w", id, err)
	}
	return fmt.Errorf("shard %d: %w", id, err)
}

// divided reports whether a shard has got its timers from the one that it is divided from. It waits
// while that is under way.
func (c *core) divided(ctx context.Context, child timer.ShardID) (bool, error) {
	for {
		if err := c.member.CatchUp(ctx); err != nil {
			return false, err
		}
		row, there := c.member.State.Row(child)
		if !there || row.Settled || row.Epoch > 1 {
			return there, nil
		}
		if !c.p.tasks.Sleep(ctx, dividedPoll) {
			return false, ctx.Err()
		}
	}
}

func (c *core) leadsBackups() bool { return c.host.Leads(shard.Meta) }

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

func (b *backupRun) Begin(id timer.ShardID, index, size, hash uint64) (err error) {
	if b.file == nil {
		if b.file, err = backup.NewWriter(b.to, b.head, b.keys, random); err != nil {
			return err
		}
	}
	return b.file.Begin(id, index, size, hash)
}

func (b *backupRun) Write(p []byte) (int, error) { return b.file.Write(p) }

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
		return errors.New("topics: this node's copy in memory is damaged: take the backup at another node, and restart this one")
	}
	return b.file.End()
}
