package wal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"time"

	"carillon/internal/vfs"
)

// InspectOptions decides how much Inspect prints.
type InspectOptions struct {
	Frames  bool // a line for each frame
	Records bool // a line for each record too
}

// Inspect prints as plain text the contents of the streams and snapshots at or below dir. It
// verifies as it reads and changes nothing. Damage is printed and returned.
func Inspect(fsys vfs.FS, dir string, w io.Writer, opt InspectOptions) error {
	p := printer{w: bufio.NewWriter(w), opt: opt}
	s := &survey{fs: fsys, stream: p.stream, scanned: p.scanned, snapshot: p.snapshot, trouble: p.problem, remark: p.remark}
	if opt.Frames || opt.Records {
		s.frame = p.frame
	}
	if err := s.walk(dir, 0); err != nil {
		s.problem(err)
	}
	r := s.report
	p.printf("%d streams, %d generations, %d frames, %d records, %d snapshots, %d bytes, %d problems\n",
		r.Streams, r.Generations, r.Frames, r.Records, r.Snapshots, r.Bytes, len(r.Problems))
	return errors.Join(append(r.Problems, p.w.Flush())...)
}

type printer struct {
	w   *bufio.Writer
	opt InspectOptions
}

// printf writes to the buffer, which keeps the first error until Flush.
func (p *printer) printf(format string, args ...any) { _, _ = fmt.Fprintf(p.w, format, args...) }

func (p *printer) stream(dir string)  { p.printf("stream %s\n", dir) }
func (p *printer) problem(err error)  { p.printf("  PROBLEM %v\n", err) }
func (p *printer) remark(note string) { p.printf("  note %s\n", note) }

func (p *printer) scanned(_ string, found *streamScan) {
	for _, g := range found.gens {
		p.printf("  generation %d: frames %d to %d, %d bytes\n", g.Gen, g.FirstSeq, g.LastSeq, g.Bytes)
	}
	end := "not closed cleanly, or in use"
	if found.closed {
		end = "closed cleanly"
	}
	p.printf("  next frame %d, %s\n", found.chain.next, end)
}

func (p *printer) frame(gen uint64, segment string, off int64, h header, records []byte) {
	count, _ := checkRecords(records)
	at := time.UnixMilli(int64(h.wallMs)).UTC().Format("2006-01-02T15:04:05.000Z")
	p.printf("  frame %d: %s/%s offset %d, %d bytes, %d records, synced %d, %s\n",
		h.seq, genName(gen), segment, off, frameHeaderBytes+len(records), count, h.synced, at)
	for p.opt.Records && len(records) > 0 {
		var r Record
		r, records, _ = nextRecord(records)
		p.printf("    %s shard %d, %d bytes\n", r.Type, r.Shard, len(r.Data))
	}
}

func (p *printer) snapshot(path string, r *SnapshotReader) {
	m := r.Meta()
	p.printf("snapshot %s: shard %d, index %d, term %d, hash %016x, conf %d bytes, data %d bytes\n",
		path, m.Shard, m.Index, m.Term, m.Hash, len(m.Conf), r.Size())
}
