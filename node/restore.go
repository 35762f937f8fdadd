package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"carillon/internal/backup"
	"carillon/internal/bucket"
	"carillon/internal/feature"
	"carillon/internal/secret"
	"carillon/internal/vfs"
	"carillon/node/member"
	"carillon/ring"
	"carillon/shard"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/wal"
)

// Overdue is how timers are treated that were due before the restore; see package shard.
type Overdue = table.Overdue

// The ways to treat them.
const (
	HoldOverdue = table.HoldOverdue
	FireOverdue = table.FireOverdue
	DropOverdue = table.DropOverdue
)

// ErrPlainBackup refuses a backup that could have been made without the cluster's keys.
var ErrPlainBackup = errors.New("the backup is not encrypted, so anybody may have made it, but --secrets-key is given; if the file is yours: --allow-plain")

// RestoreConfig names the backup that is restored, and the directory.
type RestoreConfig struct {
	From           string // the backup: a file, or s3://bucket/key
	DataDir        string // made, or empty
	Overdue        Overdue
	Shards         int    // 0: as in the backup, and nothing else is possible
	ClusterID      string // of the new cluster; made if it is empty
	Name, Zone     string // of its first node
	SecretsKeyFile string
	AllowPlain     bool // a backup that is not encrypted, although there is a SecretsKeyFile
	Version        string
}

// Restored counts the restored parts.
type Restored struct {
	ClusterID string // the new one
	Backup    backup.Head
	Topics    int
	Paused    []string // topics that start paused because of timers that are overdue, by name
	table.Restore
}

// Restore makes the data directory of a node that is a cluster by itself, with all that a backup
// has. The whole backup is verified before the first byte is written. The written files are removed
// again when it fails.
func Restore(cfg RestoreConfig) (*Restored, error) {
	if cfg.Name == "" {
		host, _ := os.Hostname()
		cfg.Name = nameOf(host)
	}
	keys, _, err := (Credentials{SecretsKeyFile: cfg.SecretsKeyFile}).readSecretsKeys()
	if err != nil {
		return nil, err
	}
	r := &restore{cfg: cfg, fsys: vfs.OS{}, keys: keys, nowMs: time.Now().UnixMilli()}
	if r.from, err = openBackup(cfg.From); err != nil {
		return nil, err
	}
	defer r.from.Close()
	if err := r.verify(); err != nil {
		return nil, err
	}
	if err := r.knowsOverdue(); err != nil {
		return nil, err
	}
	return r.write()
}

// knowsOverdue refuses to find the overdue timers by a clock that is surely behind: it would let
// those go that the lost cluster may have fired.
func (r *restore) knowsOverdue() error {
	if r.cfg.Overdue == FireOverdue || r.head.TimeMs-r.nowMs < time.Minute.Milliseconds() {
		return nil
	}
	utc := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
	return fmt.Errorf("it is %s by this machine's clock, and the backup was made at %s: which timers may have been fired since cannot be told; set the clock, or take --fired fire",
		utc(r.nowMs), utc(r.head.TimeMs))
}

// openBackup opens a file, or an object in S3. Reading the object fails if another is put in its
// place meanwhile.
func openBackup(name string) (io.ReadSeekCloser, error) {
	if !bucket.Is(name) {
		return os.Open(name)
	}
	place, err := bucket.Open(name)
	if err != nil {
		return nil, err
	}
	return place.Read(context.Background(), place.Key())
}

type restore struct {
	cfg   RestoreConfig
	fsys  vfs.FS
	keys  *secret.Keys
	nowMs int64
	from  io.ReadSeekCloser // the backup

	head  backup.Head
	had   int // shards that have a state in it
	meta  any // the value that the meta group's machine has read
	saved ring.Saved
}

// each goes through the states of the file that count.
func (r *restore) each(do func(s backup.State, body io.Reader) error) (backup.Head, error) {
	if _, err := r.from.Seek(0, io.SeekStart); err != nil {
		return backup.Head{}, err
	}
	in, err := backup.NewReader(r.from)
	if err != nil {
		return backup.Head{}, err
	}
	if in.Head().Key == "" && r.cfg.SecretsKeyFile != "" && !r.cfg.AllowPlain {
		return backup.Head{}, ErrPlainBackup
	}
	if err := in.Unlock(r.keys); err != nil {
		return backup.Head{}, err
	}
	for {
		s, err := in.Next()
		if errors.Is(err, io.EOF) {
			return in.Head(), nil
		}
		if err != nil {
			return backup.Head{}, err
		}
		if err := do(s, in); err != nil && !errors.Is(err, backup.ErrVoid) {
			return backup.Head{}, err
		}
	}
}

// verify reads the whole file, every timer of it.
func (r *restore) verify() error {
	seen := map[timer.ShardID]bool{}
	head, err := r.each(func(s backup.State, body io.Reader) error {
		if err := r.readState(s, body); err != nil {
			return err
		}
		if seen[s.Group] {
			return fmt.Errorf("backup: it has shard %d twice", s.Group)
		}
		seen[s.Group] = true
		return nil
	})
	if err != nil {
		return err
	}
	r.head, r.had = head, len(seen)-1
	if !seen[shard.Meta] || !r.saved.Fits(r.had) {
		return fmt.Errorf("backup: it has %d states, and should have %d", len(seen), 1+head.Shards)
	}
	for id := range timer.ShardID(r.had) {
		if !seen[1+id] {
			return fmt.Errorf("backup: it lacks shard %d", 1+id)
		}
	}
	if n := r.cfg.Shards; n != 0 && n != r.saved.Shards {
		return fmt.Errorf("the backup has %d shards, and so will the cluster: a timer's id may say in which one it is. "+
			"For twice as many, 4 times, … use carillon ctl shards once it runs; for any other number restore it so and move its topics to a new cluster "+
			"with carillon ctl export and import", r.saved.Shards)
	}
	return nil
}

// readState reads a state whole, and holds it against the file's description of it.
func (r *restore) readState(s backup.State, body io.Reader) error {
	counted := &countedReader{from: body}
	var hash uint64
	if s.Group == shard.Meta {
		saved, metaHash, err := ring.NewState(nil, nil).Read(counted)
		if err != nil {
			return voidOr(counted, err)
		}
		r.meta, r.saved, hash = saved, ring.SavedParts(saved), metaHash
	} else {
		if _, err := table.Load(s.Group, counted); err != nil {
			return voidOr(counted, err)
		}
		hash = s.Hash // a table has its own, and is checked against it
	}
	if _, err := io.Copy(io.Discard, counted); err != nil {
		return err
	}
	if s.Size != 0 && s.Size != counted.n {
		return fmt.Errorf("backup: shard %d has %d bytes, and should have %d", s.Group, counted.n, s.Size)
	}
	if hash != s.Hash {
		return fmt.Errorf("backup: the topics have the hash %016x, and should have %016x", hash, s.Hash)
	}
	return nil
}

// countedReader counts, and keeps the first error that is the file's.
type countedReader struct {
	from io.Reader
	n    uint64
	err  error
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n += uint64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// voidOr prefers a fault of the file to the error that it caused in the reading of a state.
func voidOr(c *countedReader, err error) error {
	if c.err != nil {
		return c.err
	}
	return err
}

// prepare lays out the new cluster, and refuses one that cannot be.
func (r *restore) prepare() (out *Restored, self ring.Node, placed *ring.State, err error) {
	out = &Restored{ClusterID: r.cfg.ClusterID, Backup: r.head}
	if out.ClusterID == "" {
		out.ClusterID = member.NewClusterID(random)
	}
	self = ring.Node{ID: member.NewNodeID(random), Name: r.cfg.Name, Zone: r.cfg.Zone, Version: r.cfg.Version, Level: feature.LevelOfBuild}
	out.Restore = table.Restore{
		Owner: table.NewIncarnation(self.ID, 0), NowMs: r.nowMs, Overdue: r.cfg.Overdue, Topics: r.saved.Topics,
	}
	// The placement is the same whichever topics are paused.
	placed, err = ring.Restored(r.meta, r.nowMs, out.ClusterID, self, r.had, func(timer.TopicID) bool { return false })
	return out, self, placed, err
}

func (r *restore) write() (out *Restored, err error) {
	out, self, placed, err := r.prepare()
	if err != nil {
		return nil, err
	}
	dir := r.cfg.DataDir
	if err := r.free(dir); err != nil {
		return nil, err
	}
	lock, err := vfs.LockDir(r.fsys, dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	snapshots := shard.SnapshotsDir(dir)
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(snapshots), os.RemoveAll(filepath.Join(dir, "wal")))
		}
	}()
	if err := wal.PrepareSnapshotDir(r.fsys, snapshots); err != nil {
		return nil, err
	}
	if err := r.writeShards(out, placed); err != nil {
		return nil, err
	}
	state, err := r.writeMeta(out, self)
	if err != nil {
		return nil, err
	}
	if err := shard.CreateLog(r.fsys, dir); err != nil {
		return nil, err
	}
	row, _ := state.Row(shard.Meta)
	_, shards, replicas := state.Cluster()
	plan := &ring.FoundingPlan{ClusterID: out.ClusterID, Shards: shards, Replicas: replicas, Nodes: state.Nodes()}
	return out, member.WriteRestoredIdentity(r.fsys, dir, plan, state.Shards().First, row.ForHost())
}

// free refuses a directory that has something in it.
func (r *restore) free(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range list {
		if e.Name() != "lost+found" && e.Name() != vfs.LockName {
			return fmt.Errorf("%s is not empty (%s is there): a backup is restored into a new directory", dir, e.Name())
		}
	}
	return nil
}

func (r *restore) writeShards(out *Restored, placed *ring.State) error {
	_, err := r.each(func(s backup.State, body io.Reader) error {
		if s.Group == shard.Meta {
			return nil
		}
		counted := &countedReader{from: body}
		t, err := out.Table(s.Group, counted)
		if err != nil {
			return voidOr(counted, err)
		}
		if _, err := io.Copy(io.Discard, counted); err != nil {
			return fmt.Errorf("shard %d: %w", s.Group, counted.err)
		}
		row, ok := placed.Row(s.Group)
		if !ok {
			return fmt.Errorf("shard %d has no place", s.Group)
		}
		return shard.WriteRestored(r.fsys, r.cfg.DataDir, row.ForHost(), t.BeginSnapshot(), func(written io.Reader) error {
			_, err := table.Load(s.Group, written)
			return err
		})
	})
	return err
}

// writeMeta writes the meta group's state, now that it is known which topics are held.
func (r *restore) writeMeta(out *Restored, self ring.Node) (*ring.State, error) {
	state, err := ring.Restored(r.meta, r.nowMs, out.ClusterID, self, r.had, func(id timer.TopicID) bool { return out.Held[id] > 0 })
	if err != nil {
		return nil, err
	}
	for _, t := range state.List("", timer.MaxTopics) {
		out.Topics++
		if out.Held[t.ID] > 0 {
			out.Paused = append(out.Paused, t.Name)
		}
	}
	slices.Sort(out.Paused)
	row, _ := state.Row(shard.Meta)
	saving := state.BeginSave()
	return state, shard.WriteRestored(r.fsys, r.cfg.DataDir, row.ForHost(), saving, func(written io.Reader) error {
		_, hash, err := ring.NewState(nil, nil).Read(written)
		if err == nil && hash != saving.Hash() {
			err = errors.New("the topics that were written are not those that were restored")
		}
		return err
	})
}
