package history

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"carillon/internal/vfs"
)

const (
	fileMagic   = "CHST"
	fileVersion = 1
	fileHead    = 40
	fileSuffix  = ".hist"

	tailMagic = "CHSX"
	tailBytes = 64

	pageBytes = 4096
	// maxRecord is the longest record: a timer has at most about 2 MiB.
	maxRecord = 3 << 20
	// maxFileBytes is more than a file of records ever has; a longer one is not ours.
	maxFileBytes = 1 << 30
)

// file holds the records of some time. One is being written; the others are sealed: their index
// lies behind their records, and only a filter and some bounds of it are in memory.
type file struct {
	name    string
	number  uint64
	handle  vfs.File
	at      vfs.Place // once it is the one that is written
	startMs int64     // of the slice of time in which it was begun
	salt    salt

	use sync.RWMutex // held for reading while a query uses the handle

	// The fields below change only while it is being written, under the store's lock.
	size   int64 // in all
	data   int64 // … of head and records
	sealed bool
	index  index // of a sealed one only filter, reached and bounds

	ends, ids, attempts section
	sums                []uint32 // of the pages of all sections

	mending sync.Mutex
	mended  atomic.Pointer[index] // the index of a sealed file whose own turned out to be damaged
}

// section is a sorted part of an index on disk, in pages.
type section struct {
	at        int64
	count     int
	width     int // bytes of one
	firstPage int
}

func (s section) perPage() int { return pageBytes / s.width }
func (s section) pages() int   { return (s.count + s.perPage() - 1) / s.perPage() }
func (s section) bytes() int64 { return int64(s.count) * int64(s.width) }

func fileName(number uint64) string { return fmt.Sprintf("%016x%s", number, fileSuffix) }

func fileNumber(name string) (uint64, bool) {
	hex, ok := strings.CutSuffix(name, fileSuffix)
	if !ok || len(hex) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(hex, 16, 64)
	return n, err == nil
}

func createFile(fsys vfs.FS, dir string, number uint64, startMs int64, salt salt, segment int64) (*file, error) {
	name := filepath.Join(dir, fileName(number))
	h, err := fsys.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR)
	if err != nil {
		return nil, err
	}
	head := appendHead(nil, number, startMs, salt)
	if _, err = h.WriteAt(head, 0); err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		_ = h.Close()
		_ = fsys.Remove(name)
		return nil, err
	}
	return &file{name: name, number: number, handle: h, startMs: startMs, salt: salt, size: fileHead, data: fileHead, index: newIndex(segment)}, nil
}

// openFile opens a file. One that is not sealed, or whose end is damaged, is read through; holes
// are places in it that could not be read. It may grow to about segment bytes.
func openFile(fsys vfs.FS, dir string, number uint64, segment int64) (f *file, holes int, err error) {
	name := filepath.Join(dir, fileName(number))
	h, err := fsys.OpenFile(name, os.O_RDWR)
	if err != nil {
		return nil, 0, err
	}
	f = &file{name: name, number: number, handle: h}
	defer func() {
		if err != nil {
			_ = h.Close()
		}
	}()
	if f.size, err = h.Size(); err != nil {
		return nil, 0, err
	}
	var head [fileHead]byte
	if f.size > maxFileBytes {
		return nil, 0, fmt.Errorf("%w: %d bytes long", errDamaged, f.size)
	}
	if _, err = h.ReadAt(head[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	named, ok := f.readHead(head[:])
	if !ok { // as a crash may leave it, when nothing was synced
		f.startMs, f.data, f.index = 0, fileHead, newIndex(segment)
		return f, 1, nil
	}
	misplaced := 0
	if named != number {
		f.startMs, misplaced = 0, 1
	}
	if err = f.readTail(); err == nil {
		f.sealed = true
		return f, misplaced, nil
	}
	if !errors.Is(err, errDamaged) {
		return nil, 0, err
	}
	f.index, f.data, holes, err = f.scan(segment)
	return f, holes + misplaced, err
}

// appendHead is how a file begins. The file's number is in it, so that one in the place of another
// is known: its records are true, but others are missing.
func appendHead(dst []byte, number uint64, startMs int64, s salt) []byte {
	from := len(dst)
	dst = binary.LittleEndian.AppendUint32(append(dst, fileMagic...), fileVersion)
	for _, v := range [...]uint64{number, uint64(startMs), uint64(s)} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return binary.LittleEndian.AppendUint64(dst, s.sum64(dst[from:]))
}

// readHead reads a head; false when it is damaged. Nothing of a file can be read without its salt.
func (f *file) readHead(head []byte) (number uint64, ok bool) {
	le := binary.LittleEndian
	number, f.startMs, f.salt = le.Uint64(head[8:]), int64(le.Uint64(head[16:])), salt(le.Uint64(head[24:]))
	return number, bytes.Equal(appendHead(nil, number, f.startMs, f.salt), head)
}

// scan reads all records and makes their index. end is where the last one ends.
func (f *file) scan(segment int64) (x index, end int64, holes int, err error) {
	x, end = newIndex(max(f.size, segment)), fileHead
	r := bufio.NewReaderSize(io.NewSectionReader(f.handle, fileHead, max(0, f.size-fileHead)), int(min(recordHead+maxRecord, f.size+recordHead)))
	at, lost := int64(fileHead), false
	for {
		head, err := r.Peek(recordHead)
		if errors.Is(err, io.EOF) {
			if lost || len(head) > 0 {
				holes++
			}
			return x, end, holes, nil
		}
		if err != nil {
			return x, end, holes, err
		}
		n := 0
		if size, ok := f.salt.sizeOf(head); ok && int64(size) <= f.size-at-recordHead && x.len() < 2*indexLimit {
			b, err := r.Peek(recordHead + size)
			if err != nil && !errors.Is(err, io.EOF) {
				return x, end, holes, err
			}
			var e Event
			if n, err = f.salt.decodeRecord(b, &e); err != nil {
				n = 0
			} else {
				x.add(&e, uint32(at))
			}
		}
		if n == 0 { // look for the next record
			lost, n = true, 1
		} else {
			if lost {
				holes, lost = holes+1, false
			}
			end = at + int64(n)
		}
		_, _ = r.Discard(n)
		at += int64(n)
	}
}

// appendTail is all that lies behind a sealed file's records.
func (f *file) appendTail() []byte {
	x := &f.index
	ends, ids, attempts := x.sections()
	out := make([]byte, 0, len(ends)+len(ids)+len(attempts)+len(ends)/256+4*x.len()+tailBytes)
	var sums []byte
	for _, s := range []struct {
		bytes []byte
		width int
	}{{ends, entryBytes}, {ids, idBytes}, {attempts, triedBytes}} {
		out = append(out, s.bytes...)
		step := pageBytes / s.width * s.width
		for from := 0; from < len(s.bytes); from += step {
			sums = binary.LittleEndian.AppendUint32(sums, f.salt.sum(s.bytes[from:min(from+step, len(s.bytes))]))
		}
	}
	kept := sums
	for shard := range uint32(1 << shardBits) {
		if r, ok := x.watermark[shard]; ok {
			kept = binary.LittleEndian.AppendUint32(kept, shard)
			kept = binary.LittleEndian.AppendUint64(kept, r.index)
			kept = binary.LittleEndian.AppendUint32(kept, r.item)
		}
	}
	bloom := x.finalFilter()
	kept = append(kept, bloom...)
	out = append(out, kept...)

	le := binary.LittleEndian
	from := len(out)
	out = le.AppendUint32(append(out, tailMagic...), fileVersion)
	out = le.AppendUint64(out, uint64(f.data))
	for _, n := range []int{len(x.ends), len(x.attempts), len(x.watermark), len(bloom)} {
		out = le.AppendUint32(out, uint32(n))
	}
	out = le.AppendUint64(out, uint64(x.minMs))
	out = le.AppendUint64(out, uint64(x.maxMs))
	out = le.AppendUint64(out, f.salt.sum64(kept))
	return le.AppendUint64(out, f.salt.sum64(out[from:]))
}

// readTail reads the part of a sealed file's index that is held in memory; errDamaged when there is
// none that can be read.
func (f *file) readTail() error {
	if f.size < fileHead+tailBytes {
		return errDamaged
	}
	var b [tailBytes]byte
	if err := f.read(b[:], f.size-tailBytes); err != nil {
		return err
	}
	le := binary.LittleEndian
	if string(b[:4]) != tailMagic || le.Uint32(b[4:]) != fileVersion || f.salt.sum64(b[:56]) != le.Uint64(b[56:]) {
		return errDamaged
	}
	f.data = int64(le.Uint64(b[8:]))
	ends, attempts, shards, bloom := le.Uint32(b[16:]), le.Uint32(b[20:]), le.Uint32(b[24:]), le.Uint32(b[28:])
	f.index = index{watermark: make(map[uint32]watermark, shards), minMs: int64(le.Uint64(b[32:])), maxMs: int64(le.Uint64(b[40:]))}
	f.lay(int(ends), int(attempts))
	from := f.attempts.at + f.attempts.bytes()
	kept := f.size - tailBytes - from
	if kept != int64(4*len(f.sums))+16*int64(shards)+int64(bloom) || f.data < fileHead || f.data > math.MaxUint32 {
		return errDamaged
	}
	list := make([]byte, kept)
	if err := f.read(list, from); err != nil {
		return err
	}
	if f.salt.sum64(list) != le.Uint64(b[48:]) {
		return errDamaged
	}
	for i := range f.sums {
		f.sums[i] = le.Uint32(list[4*i:])
	}
	list = list[4*len(f.sums):]
	for ; shards > 0; shards-- {
		f.index.watermark[le.Uint32(list)] = watermark{le.Uint64(list[4:]), le.Uint32(list[12:])}
		list = list[16:]
	}
	f.index.filter = list
	return nil
}

// lay computes where the sections are.
func (f *file) lay(ends, attempts int) {
	f.ends = section{at: f.data, count: ends, width: entryBytes}
	f.ids = section{at: f.data + f.ends.bytes(), count: ends, width: idBytes, firstPage: f.ends.pages()}
	f.attempts = section{at: f.ids.at + f.ids.bytes(), count: attempts, width: triedBytes, firstPage: f.ids.firstPage + f.ids.pages()}
	f.sums = make([]uint32, f.attempts.firstPage+f.attempts.pages())
}

// read fills b; a file that ends early is damaged.
func (f *file) read(b []byte, at int64) error {
	if at < 0 {
		return errDamaged
	}
	n, err := f.handle.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return errDamaged
	}
	return err
}

func (f *file) page(s section, n int, buf []byte) ([]byte, error) {
	from := n * s.perPage()
	b := buf[:min(s.perPage(), s.count-from)*s.width]
	if err := f.read(b, s.at+int64(from*s.width)); err != nil {
		return nil, err
	}
	if f.salt.sum(b) != f.sums[s.firstPage+n] {
		return nil, errDamaged
	}
	return b, nil
}

// search is the number of the first element of a section that is not less; less holds for a front
// part of it.
func (f *file) search(s section, less func(b []byte) bool) (int, error) {
	var buf [pageBytes]byte
	var b []byte
	var err error
	pages := sort.Search(s.pages(), func(n int) bool { // of those whose first element is less, the last has it
		if err == nil {
			b, err = f.page(s, n, buf[:])
		}
		return err != nil || !less(b[:s.width])
	})
	if err != nil || pages == 0 {
		return 0, err
	}
	if b, err = f.page(s, pages-1, buf[:]); err != nil {
		return 0, err
	}
	return (pages-1)*s.perPage() + sort.Search(len(b)/s.width, func(n int) bool { return !less(b[n*s.width:]) }), nil
}

// reindex builds the index of a sealed file again, in memory, from its records. places is how many
// were found damaged, the index included.
func (f *file) reindex() (x *index, places int, err error) {
	f.mending.Lock()
	defer f.mending.Unlock()
	if x := f.mended.Load(); x != nil {
		return x, 0, nil
	}
	made, _, holes, err := f.scan(0)
	if err != nil {
		return nil, 0, err
	}
	f.mended.Store(&made)
	return &made, 1 + holes, nil
}
