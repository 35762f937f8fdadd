package ring

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"carillon/internal/feature"
	"carillon/timer/encoding"
)

// The metadata that a node gossips, at most metaMax bytes, which is the library's bound:
//
//	version 1 | flags 1 | id, starts, expect, shards, replicas, level uvarint |
//	name, zone, version, cluster, http, peer texts
//
// A text is its length (uvarint) and bytes. The cluster id goes as 16 raw bytes where it is 32
// hexadecimal digits, and peer as the rest behind the part (uvarint) that it has in common with
// http, which is the host. Later versions append fields, which this one ignores.
const (
	metaVersion = 1
	metaMax     = 512

	metaLeaving    = 1 << 0
	metaRawCluster = 1 << 1

	metaMaxVersion = 32 // bytes of a build's version; more is cut
	metaMaxCluster = 64 // bytes
	metaMaxCount   = 1 << 20
)

func encodeMember(v Member, leaving bool) ([]byte, error) {
	if err := checkMember(v); err != nil {
		return nil, err
	}
	flags, cluster := encoding.Flag(leaving, metaLeaving), []byte(v.Cluster)
	if raw, err := hex.DecodeString(v.Cluster); err == nil && len(raw) == 16 && hex.EncodeToString(raw) == v.Cluster {
		flags |= metaRawCluster
		cluster = raw
	}
	b := append(make([]byte, 0, 256), metaVersion, flags)
	b = encoding.AppendUvarints(b, v.ID, uint64(v.Starts), uint64(v.Expect), uint64(v.Shards), uint64(v.Replicas), uint64(v.Level))
	common := 0
	for common < min(len(v.HTTP), len(v.Peer)) && v.HTTP[common] == v.Peer[common] {
		common++
	}
	for _, text := range []string{v.Name, v.Zone, v.node().Version, string(cluster), v.HTTP} {
		b = append(binary.AppendUvarint(b, uint64(len(text))), text...)
	}
	b = binary.AppendUvarint(b, uint64(common))
	b = append(binary.AppendUvarint(b, uint64(len(v.Peer)-common)), v.Peer[common:]...)
	if len(b) > metaMax {
		return nil, fmt.Errorf("this node's description has %d bytes, the limit is %d: shorten its addresses (%q, %q)", len(b), metaMax, v.HTTP, v.Peer)
	}
	return b, nil
}

// decodeMember reads a description that encodeMember wrote; everything it answers is within the
// bounds, for any bytes.
func decodeMember(n gossipNode) (v Member, leaving bool, err error) {
	b := n.meta
	if len(b) < 2 || b[0] != metaVersion {
		return Member{}, false, fmt.Errorf("metadata of %d bytes is not of version %d", len(b), metaVersion)
	}
	flags := b[1]
	r := encoding.Reader{Rest: b[2:]}
	number := func(most uint64) uint64 { return r.Number(most, "number") }
	text := func() string { return string(r.Block(len(r.Rest), "text")) }
	v.ID, v.Starts = number(maxNodeID-1), uint32(number(1<<32-1))
	v.Expect, v.Shards, v.Replicas = int(number(metaMaxCount)), int(number(metaMaxCount)), int(number(metaMaxCount))
	v.Level = feature.Level(number(metaMaxCount))
	v.Name, v.Zone, v.Version, v.Cluster, v.HTTP = text(), text(), text(), text(), text()
	v.Peer = v.HTTP[:number(uint64(len(v.HTTP)))] + text()
	if flags&metaRawCluster != 0 {
		v.Cluster = hex.EncodeToString([]byte(v.Cluster))
	}
	v.Version, v.Gossip = v.node().Version, n.addr
	if r.Fault != "" {
		return Member{}, false, errors.New("metadata is cut short or out of bounds")
	}
	if err := checkMember(v); err != nil {
		return Member{}, false, err
	}
	return v, flags&metaLeaving != 0, nil
}

func checkMember(v Member) error {
	n := v.node()
	if err := n.validate(); err != nil {
		return err
	}
	if len(v.Cluster) > metaMaxCluster || !textPattern.MatchString(v.Cluster) {
		return fmt.Errorf("node %q: cluster id %q is longer than %d or not printable", v.Name, v.Cluster, metaMaxCluster)
	}
	for _, n := range []int{v.Expect, v.Shards, v.Replicas} {
		if n < 0 || n > metaMaxCount {
			return fmt.Errorf("node %q: founding wish %d is out of bounds", v.Name, n)
		}
	}
	return nil
}

// node is the part of a member that the cluster keeps. A version that is too long to be gossiped is
// cut.
func (m Member) node() Node {
	return Node{ID: m.ID, Name: m.Name, HTTP: m.HTTP, Peer: m.Peer, Gossip: m.Gossip, Zone: m.Zone,
		Version: m.Version[:min(len(m.Version), metaMaxVersion)], Starts: m.Starts, Level: m.Level}
}
