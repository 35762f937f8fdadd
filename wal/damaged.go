package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"carillon/vfs"
)

// Damage is one unreadable part of a stream: a piece of one segment, and the frames that were in
// it.
type Damage struct {
	Gen         uint64
	Segment     string // file name
	Offset, End int64  // the bytes that are no frames; the same where the file is cut short
	First, Last uint64 // sequence numbers of the frames that are lost
	Err         error  // the fault at Offset

	before    uint64 // chain value before frame First, if loose is not set
	unchained bool   // the part before it is lost, too
	after     uint32 // chain value that the frame behind it was written with, if
	bounded   bool   // that frame can be read
}

// Lost is how many frames are lost.
func (d *Damage) Lost() uint64 { return d.Last + 1 - d.First }

func (d *Damage) String() string {
	return fmt.Sprintf("%s/%s offset %d to %d, frames %d to %d: %v", genName(d.Gen), d.Segment, d.Offset, d.End, d.First, d.Last, d.Err)
}

// DamagedStream is the result of a read through a damaged stream.
type DamagedStream struct {
	Damages []*Damage // in order; at most one of each segment

	fs   vfs.FS
	dir  string
	salt salt
	note func(*Damage) error
}

// ScanDamaged reads a stream that may be damaged, without changing it, and without its lock. It
// calls visit for each record that can be read and is known to be in its place, and lost for each
// damage, in order. Damage that can only be the end of the log, or is lost with it, is as with
// Open; that and damage to FIRST, END or whole generations is a *CorruptionError.
//
// Frames in their place are: frames before a damage, by their chain from the start; frames behind
// it, by their chain up to the next segment, whose first frame is found by the file's name, or up
// to END. So bytes that look like frames within a lost one, which a client may have written, are
// never taken for frames. Frames between two damages of one segment are lost with them.
func ScanDamaged(fsys vfs.FS, dir string, visit func(pos Position, r Record) error, lost func(d *Damage) error) (*DamagedStream, error) {
	w := &DamagedStream{fs: fsys, dir: dir, note: lost}
	sc := scanner{fs: fsys, dir: dir, frame: newReplayer(1, visit).frame, damaged: w}
	found, err := sc.scan()
	if err != nil {
		return nil, err
	}
	w.salt = found.chain.salt
	return w, nil
}

// lose notes frames that are lost between the scan's place and frame next.
func (s *scanner) lose(d *Damage, next uint64) error {
	c := &s.out.chain
	d.First, d.Last, d.before, d.unchained = c.next, next-1, uint64(c.prevHash), c.unchained
	s.damaged.Damages = append(s.damaged.Damages, d)
	c.next, c.unchained = next, !d.bounded
	if d.bounded {
		c.prevHash = d.after
	}
	return s.damaged.note(d)
}

// bound completes the last damage by the first frame behind it.
func (w *DamagedStream) bound(prevHash uint32) {
	if n := len(w.Damages); n > 0 && !w.Damages[n-1].bounded {
		w.Damages[n-1].after, w.Damages[n-1].bounded = prevHash, true
	}
}

// segmentEnd is the end of a segment that is whole: the place of the next frame, and the chain
// value that it was written with.
type segmentEnd struct {
	seq   uint64
	hash  uint32
	known bool // the chain value
}

// borders are those of all segments, in order. The last one's is from END, if it is there.
func (s *scanner) borders(gens []generation) (list []segmentEnd, err error) {
	var buf []byte
	for _, g := range gens {
		for _, seq := range g.segments {
			b := segmentEnd{seq: seq}
			buf, err = vfs.ReadFile(s.fs, filepath.Join(genPath(s.dir, g.num), segmentName(seq)), buf, maxSegmentFileBytes)
			if err != nil {
				return nil, fmt.Errorf("wal: read %s: %w", segmentName(seq), err)
			}
			if frame, _, err := nextEntry(buf); err == nil {
				if h, _, err := s.out.chain.salt.open(frame); err == nil && h.seq == seq {
					b.hash, b.known = h.prevHash, true
				}
			}
			list = append(list, b)
		}
	}
	end, closed, err := readBounds(s.fs, s.dir, endName, endMagic)
	if err != nil {
		return nil, err
	}
	if closed {
		list = append(list, segmentEnd{seq: end.seq, hash: end.prevHash, known: true})
	}
	return list[1:], nil
}

// salvage goes on with the segment in the buffer behind a bad frame at offset n. It returns the
// file's end.
func (s *scanner) salvage(gen uint64, name string, n int, bad error, at segmentEnd, visit func(off int, h header, records []byte) error) (int64, error) {
	d := &Damage{Gen: gen, Segment: name, Offset: int64(n), End: int64(len(s.buf)), Err: bad}
	if bad == nil {
		d.Err = errTruncated
	}
	if at.seq < s.out.chain.next {
		return 0, &CorruptionError{Dir: genPath(s.dir, gen), Segment: name, Offset: int64(n), Seq: s.out.chain.next, Err: errGap}
	}
	from, first, found := s.resync(n, at)
	if !found {
		d.after, d.bounded = at.hash, at.known
		return d.End, s.lose(d, at.seq)
	}
	d.End, d.after, d.bounded = int64(from), first.prevHash, true
	if err := s.lose(d, first.seq); err != nil {
		return 0, err
	}
	_, bad, err := s.out.chain.scan(s.buf[from:], func(off int, h header, records []byte) error { return visit(from+off, h, records) })
	if err == nil && bad != nil {
		// It was whole a moment ago.
		err = &CorruptionError{Dir: genPath(s.dir, gen), Segment: name, Offset: int64(from), Seq: s.out.chain.next, Err: bad}
	}
	return int64(len(s.buf)), err
}

// resync finds the first frame behind offset n from which the chain leads to the border. A border
// whose chain value is unknown proves nothing.
func (s *scanner) resync(n int, at segmentEnd) (from int, first header, found bool) {
	if !at.known {
		return 0, header{}, false
	}
	mark := binary.LittleEndian.AppendUint32(nil, s.out.chain.salt.mark())
	budget := hashBudgetFactor * (len(s.buf) - n)
	for i := n + 1; i < len(s.buf) && budget >= 0; i++ {
		k := bytes.Index(s.buf[i:], mark)
		if k < 0 {
			break
		}
		i += k
		for prefix := 1; prefix <= 4 && i-prefix >= n; prefix++ {
			b, size, err := nextEntry(s.buf[i-prefix:])
			if err != nil || size != prefix+len(b) {
				continue
			}
			budget -= len(b)
			h, _, err := s.out.chain.salt.open(b)
			if err != nil || h.seq <= s.out.chain.next || h.seq >= at.seq {
				continue
			}
			budget -= len(s.buf) - i
			c := chain{next: h.seq, prevHash: h.prevHash, salt: s.out.chain.salt}
			end, bad, _ := c.scan(s.buf[i-prefix:], func(int, header, []byte) error { return nil })
			if bad == nil && i-prefix+end == len(s.buf) && c.next == at.seq && c.prevHash == at.hash {
				return i - prefix, h, true
			}
		}
	}
	return 0, header{}, false
}

// Repair puts frames in the place of those that are lost, so that the stream can be opened again:
// those of damage k hold the records of records[k], in order. Each segment is replaced at once and
// durably; the bytes that could not be read are kept in a .broken file. After a crash some damages
// are repaired and the others are as before. No other process may have the stream.
func (w *DamagedStream) Repair(nowMs int64, records [][]Record) error {
	lock, err := vfs.LockDir(w.fs, w.dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	var prev uint32
	for k, d := range w.Damages {
		if !d.unchained {
			prev = uint32(d.before)
		}
		var patch []byte
		if patch, prev, err = d.frames(w.salt, nowMs, prev, records[k]); err != nil {
			return fmt.Errorf("wal: repair %s: %w", filepath.Join(genPath(w.dir, d.Gen), d.Segment), err)
		}
		if err := w.replace(d, patch); err != nil {
			return fmt.Errorf("wal: repair %s: %w", filepath.Join(genPath(w.dir, d.Gen), d.Segment), err)
		}
	}
	return nil
}

// mendedFrameBytes is how much a repaired frame holds, give or take a record, as long as there are
// others to take the rest.
const mendedFrameBytes = 16 << 20

// frames makes the entries that take the place of the lost ones: as many as those, since frames are
// numbered.
func (d *Damage) frames(s salt, nowMs int64, prev uint32, records []Record) (entries []byte, last uint32, err error) {
	for seq := d.First; seq <= d.Last; seq++ {
		f := NewFrame()
		bridge := seq == d.Last && d.bounded
		if bridge {
			f.buf = binary.LittleEndian.AppendUint32(f.buf, d.after)
		}
		for len(records) > 0 && (seq == d.Last || f.Len() < mendedFrameBytes) {
			f.Append(records[0].Type, records[0].Shard, records[0].Data)
			records = records[1:]
		}
		if f.Len() > MaxFrameBytes {
			return nil, 0, ErrFrameTooLarge
		}
		h := header{seq: seq, prevHash: prev, synced: d.First - 1, wallMs: uint64(nowMs), splice: bridge}
		prev = uint32(s.seal(f.buf, h))
		entries = appendEntry(entries, f.buf)
	}
	if d.bounded {
		prev = d.after
	}
	return entries, prev, nil
}

// replace writes a segment anew with other bytes in the place of the unreadable ones.
func (w *DamagedStream) replace(d *Damage, patch []byte) error {
	path := filepath.Join(genPath(w.dir, d.Gen), d.Segment)
	was, err := vfs.ReadFile(w.fs, path, nil, maxSegmentFileBytes)
	if err != nil {
		return err
	}
	if int64(len(was)) < d.End {
		return errors.New("the file is not what it was when it was read")
	}
	if cut := was[d.Offset:d.End]; len(cut) > 0 {
		if err := vfs.WriteSynced(w.fs, fmt.Sprintf("%s.%d%s", path, d.Offset, brokenSuffix), cut); err != nil {
			return err
		}
	}
	whole := make([]byte, 0, len(was)+len(patch))
	whole = append(append(append(whole, was[:d.Offset]...), patch...), was[d.End:]...)
	return vfs.WriteFileAtomic(w.fs, path, whole)
}
