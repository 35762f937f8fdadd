package ring

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"carillon/internal/feature"
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
	flags, cluster := byte(0), []byte(v.Cluster)
	if leaving {
		flags |= metaLeaving
	}
	if raw, err := hex.DecodeString(v.Cluster); err == nil && len(raw) == 16 && hex.EncodeToString(raw) == v.Cluster {
		flags |= metaRawCluster
		cluster = raw
	}
	b := append(make([]byte, 0, 256), metaVersion, flags)
	for _, n := range []uint64{v.ID, uint64(v.Starts), uint64(v.Expect), uint64(v.Shards), uint64(v.Replicas), uint64(v.Level)} {
		b = binary.AppendUvarint(b, n)
	}
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
	r := metaReader{b: b[2:]}
	v.ID, v.Starts = r.number(maxNodeID-1), uint32(r.number(1<<32-1))
	v.Expect, v.Shards, v.Replicas = int(r.number(metaMaxCount)), int(r.number(metaMaxCount)), int(r.number(metaMaxCount))
	v.Level = feature.Level(r.number(metaMaxCount))
	v.Name, v.Zone, v.Version, v.Cluster, v.HTTP = r.text(), r.text(), r.text(), r.text(), r.text()
	v.Peer = v.HTTP[:r.number(uint64(len(v.HTTP)))] + r.text()
	if flags&metaRawCluster != 0 {
		v.Cluster = hex.EncodeToString([]byte(v.Cluster))
	}
	v.Version, v.Gossip = v.node().Version, n.addr
	if r.bad {
		return Member{}, false, errors.New("metadata is cut short or out of bounds")
	}
	if err := checkMember(v); err != nil {
		return Member{}, false, err
	}
	return v, flags&metaLeaving != 0, nil
}

type metaReader struct {
	b   []byte
	bad bool
}

func (r *metaReader) number(most uint64) uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > most {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *metaReader) text() string {
	n := r.number(uint64(len(r.b)))
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
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
func (v Member) node() Node {
	return Node{ID: v.ID, Name: v.Name, HTTP: v.HTTP, Peer: v.Peer, Gossip: v.Gossip, Zone: v.Zone,
		Version: v.Version[:min(len(v.Version), metaMaxVersion)], Starts: v.Starts, Level: v.Level}
}
