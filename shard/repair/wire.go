package repair

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"carillon/shard/record"
	"carillon/timer"
	"carillon/timer/encoding"
	"carillon/vfs"
	"carillon/wal"
)

// The messages by which a node that repairs its log asks others for entries (docs/formats/peer.md).

const (
	wireVersion  = 1
	maxQuestions = 4096
	// maxAnswerBytes ends an answer, after the record that exceeds it; the rest is asked for again.
	maxAnswerBytes = 8 << 20
)

var errWire = errors.New("malformed question or answer about lost entries")

// question asks for some entries of a group, and for the term of the entry behind them.
type question struct {
	group       timer.ShardID
	first, last uint64
	above       record.EntryID
}

// answer has those of the asked entries that are surely in the answering node's log.
type answer struct {
	group   timer.ShardID
	above   record.EntryID // as asked
	term    uint64         // of its own entry at above.Index; 0: it has none
	commit  uint64         // up to here its log is known to be committed
	entries []record.Entry
}

func appendQuestions(b []byte, list []question) []byte {
	b = append(b, wireVersion)
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, q := range list {
		for _, v := range []uint64{uint64(q.group), q.first, q.last, q.above.Index, q.above.Term} {
			b = binary.AppendUvarint(b, v)
		}
	}
	return b
}

func decodeQuestions(b []byte) ([]question, error) {
	r, n, err := wireReader(b)
	if err != nil || n > maxQuestions {
		return nil, errWire
	}
	list := make([]question, n)
	for i := range list {
		q := &list[i]
		if q.group, err = readGroup(r); err != nil {
			return nil, err
		}
		q.first, q.last, q.above = r.Uvarint(), r.Uvarint(), record.EntryID{Index: r.Uvarint(), Term: r.Uvarint()}
		if q.first == 0 || q.last < q.first || q.last-q.first >= maxMissingRange || q.above.Index < q.last || q.above.Index == 1<<64-1 {
			return nil, errWire
		}
	}
	return list, r.End()
}

func appendAnswers(b []byte, list []answer) []byte {
	b = append(b, wireVersion)
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, a := range list {
		for _, v := range []uint64{uint64(a.group), a.above.Index, a.above.Term, a.term, a.commit, uint64(len(a.entries))} {
			b = binary.AppendUvarint(b, v)
		}
		for _, e := range a.entries {
			b = binary.AppendUvarint(b, e.Index)
			b = binary.AppendUvarint(b, e.Term)
			b = append(b, byte(e.Type))
			b = encoding.AppendBlock(b, string(e.Data))
		}
	}
	return b
}

// decodeAnswers decodes the output of appendAnswers; the entries' data point into b.
func decodeAnswers(b []byte) ([]answer, error) {
	r, n, err := wireReader(b)
	if err != nil || n > maxQuestions {
		return nil, errWire
	}
	list := make([]answer, n)
	for i := range list {
		a := &list[i]
		if a.group, err = readGroup(r); err != nil {
			return nil, err
		}
		a.above, a.term, a.commit = record.EntryID{Index: r.Uvarint(), Term: r.Uvarint()}, r.Uvarint(), r.Uvarint()
		n := r.Uvarint()
		if n > uint64(len(r.Rest))/4 { // an entry takes four bytes at least
			return nil, errWire
		}
		for k := uint64(0); k < n && !r.Bad; k++ {
			a.entries = append(a.entries, record.Entry{Index: r.Uvarint(), Term: r.Uvarint(), Type: pb.EntryType(r.Byte()), Data: r.Bytes()})
		}
	}
	return list, r.End()
}

func wireReader(b []byte) (r *record.Reader, n uint64, err error) {
	if len(b) == 0 || b[0] != wireVersion {
		return nil, 0, errWire
	}
	r = &record.Reader{Rest: b[1:]}
	n = r.Uvarint()
	if n > uint64(len(r.Rest)) {
		return nil, 0, errWire
	}
	return r, n, nil
}

// readGroup decodes a group's id.
func readGroup(r *record.Reader) (timer.ShardID, error) {
	id := r.Uvarint()
	if id > 65535 {
		return 0, errWire
	}
	return timer.ShardID(id), nil
}

// Answer answers another node's questions from the log in a data directory, which may be in use, or
// damaged itself. It reads the log twice, and changes nothing.
func Answer(fs vfs.FS, dir string, shards int, body []byte) ([]byte, error) {
	asked, err := decodeQuestions(body)
	if err != nil {
		return nil, err
	}
	log := filepath.Join(dir, "wal", "0")
	groups := make([]*survivingLog, shards+1)
	for _, q := range asked {
		if int(q.group) > shards {
			return nil, fmt.Errorf("shard %d: there are only %d", q.group, shards)
		}
		groups[q.group] = newSurvivingLog(q.group)
	}
	recount := func(c *record.Manifest) error {
		byGroup := c.ByGroup()
		for _, g := range groups {
			if g != nil && c.Covers(g.id) && len(g.pending) > 0 {
				_, _, _ = g.recount(byGroup(g.id), nil) // entries that the manifest contradicts stay in doubt
			}
		}
		return nil
	}
	if _, err := salvage(fs, log, groups, recount); err != nil {
		return nil, err
	}
	list := make([]answer, len(asked))
	for i, q := range asked {
		list[i] = answer{group: q.group, above: q.above, commit: groups[q.group].life.commit}
		list[i].term = termIn(groups[q.group].held(), q.above.Index)
	}
	if err := collect(fs, log, groups, asked, list); err != nil {
		return nil, err
	}
	return appendAnswers(nil, list), nil
}

// termIn returns the term of an entry; 0 if it is not held.
func termIn(held []stretch, index uint64) uint64 {
	for _, s := range held {
		if s.first <= index && index <= s.last {
			return s.term
		}
	}
	return 0
}

// collect reads the log once more for the asked entries that are held, until maxAnswerBytes.
func collect(fs vfs.FS, log string, groups []*survivingLog, asked []question, list []answer) error {
	held, questions := make([][]stretch, len(groups)), make([][]int, len(groups))
	for i, q := range asked {
		held[q.group] = groups[q.group].held()
		questions[q.group] = append(questions[q.group], i)
	}
	bytes, have := 0, map[[2]uint64]bool{} // by the question's number and the entry's index
	_, err := wal.ScanDamaged(fs, log, func(_ wal.Position, r wal.Record) error {
		if r.Type != wal.RecordEntries || int(r.Shard) >= len(groups) || groups[r.Shard] == nil || bytes > maxAnswerBytes {
			return nil
		}
		ents, err := record.ReadEntries(r.Data)
		if err != nil {
			return err
		}
		for _, i := range questions[r.Shard] {
			q := &asked[i]
			if q.last < ents[0].Index || q.first > ents[len(ents)-1].Index {
				continue
			}
			for _, e := range ents {
				key := [2]uint64{uint64(i), e.Index}
				if e.Index < q.first || e.Index > q.last || have[key] || e.Term != termIn(held[q.group], e.Index) {
					continue
				}
				have[key] = true
				bytes += len(e.Data) + entryBytes
				e.Data = slices.Clone(e.Data)
				list[i].entries = append(list[i].entries, e)
			}
		}
		return nil
	}, func(*wal.Damage) error { return nil })
	return err
}
