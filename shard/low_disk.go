package shard

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// LowDiskError refuses what adds data: the disk of a node that holds the shard's data is almost full. It is an ErrLowDisk.
type LowDiskError struct {
	Node  uint64
	Name  string // of the node, if it is known
	Path  string // of its data directory, if it is known
	Free  uint64 // bytes
	Limit uint64 // at or below which adds are refused
}

func (e LowDiskError) Error() string {
	name, path := e.Name, ""
	if name == "" {
		name = fmt.Sprintf("node %010x", e.Node)
	}
	if e.Path != "" {
		path = " (" + e.Path + ")"
	}
	return fmt.Sprintf("%s has %s free, and adds are refused at %s or less%s", name, mebibytes(e.Free), mebibytes(e.Limit), path)
}

// Is makes it an ErrLowDisk.
func (LowDiskError) Is(target error) bool { return target == ErrLowDisk }

func mebibytes(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// Disks says whose disks are low.
type Disks interface {
	// Low describes the nodes whose disk is low, this one too, as far as they are heard. It must be quick.
	Low() []LowDiskError
}

// lowDisks is what Disks says; without one, what the own log does.
func (h *Host) lowDisks() []LowDiskError {
	if h.cfg.Disks != nil {
		return h.cfg.Disks.Low()
	}
	if d := h.stream.Disk(); d.Low {
		return []LowDiskError{{Node: h.cfg.Node, Path: h.cfg.Dir, Free: d.Free, Limit: d.Limit}}
	}
	return nil
}

// noteLowDisks has a led group refuse adds while the disk of one that has a vote is low: each of them writes what is added, and one that
// came to the end of its disk could not even free anything. A follower's own word would not reach those who add.
func (g *group) noteLowDisks(low []LowDiskError) {
	i := -1
	if len(low) > 0 && g.leader {
		i = slices.IndexFunc(low, func(e LowDiskError) bool { return g.hasVoter(e.Node) })
	}
	if i < 0 {
		if g.public.lowDisk.Load() != nil {
			g.public.lowDisk.Store(nil)
		}
		return
	}
	g.public.lowDisk.Store(&low[i])
}

// hasVoter says whether a replica of a node has a vote, or is about to lose it.
func (g *group) hasVoter(node uint64) bool {
	of := func(id uint64) bool { return nodeOf(id) == node }
	return slices.ContainsFunc(g.store.conf.Voters, of) || slices.ContainsFunc(g.store.conf.VotersOutgoing, of)
}

// maxLowDiskText bounds a name or path between nodes.
const maxLowDiskText = 256

// appendLowDisk encodes it for another node.
func appendLowDisk(dst []byte, e *LowDiskError) []byte {
	for _, n := range []uint64{e.Node, e.Free, e.Limit} {
		dst = binary.AppendUvarint(dst, n)
	}
	for _, text := range []string{e.Name, e.Path} {
		text = strings.ToValidUTF8(text[:min(len(text), maxLowDiskText)], "")
		dst = appendBlock(dst, text)
	}
	return dst
}

func (r *reader) lowDisk() LowDiskError {
	return LowDiskError{Node: r.uvarint(), Free: r.uvarint(), Limit: r.uvarint(),
		Name: string(r.block(maxLowDiskText, "name")), Path: string(r.block(maxLowDiskText, "path"))}
}
