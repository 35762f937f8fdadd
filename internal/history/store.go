package history

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"carillon/internal/vfs"
)

// Config of a Store. FS, Dir, NowMs and KeepMs must be given.
type Config struct {
	FS    vfs.FS
	Dir   string
	NowMs func() int64 // the wall clock
	// Sure reports whether NowMs can be trusted: while it cannot, nothing goes by age. nil: always.
	Sure func() bool
	// KeepMs is how long ended timers are kept: the longest that any topic wants; 0: not known yet,
	// nothing goes by age.
	KeepMs func() int64

	Bytes int64 // of all files; default 4 GiB. The oldest go first
	// Of the events that wait to be written; default 16 MiB. Beyond it events are dropped.
	QueueBytes int
	// About so many bytes of records are in a file at most; default 1/32 of Bytes, at most 64 MiB.
	SegmentSize int64
	// Salt draws that of each new file: nobody may be able to guess it. Default: at random.
	Salt   func() uint64
	Logger *slog.Logger
}

const (
	defaultBytes      = 4 << 30
	defaultQueueBytes = 16 << 20
	maxSegment        = 64 << 20
	minSegment        = 64 << 10

	// lowDiskBytes are the free bytes below which the oldest files go and nothing is written.
	lowDiskBytes = 512 << 20
	syncMs       = 3000
	// minSliceMs is the least span of time whose records are in one file.
	minSliceMs = 3_600_000
	// maxSlices bounds how many files time alone makes: a longer KeepMs has longer slices.
	maxSlices = 256
	// writeInterval is how long events gather before they are written.
	writeInterval    = 200 * time.Millisecond
	maintainInterval = time.Second
)

func (c Config) withDefaults() Config {
	if c.Bytes <= 0 {
		c.Bytes = defaultBytes
	}
	if c.QueueBytes <= 0 {
		c.QueueBytes = defaultQueueBytes
	}
	if c.SegmentSize <= 0 {
		c.SegmentSize = min(max(c.Bytes/32, minSegment), maxSegment)
	}
	if c.Sure == nil {
		c.Sure = func() bool { return true }
	}
	if c.Salt == nil {
		c.Salt = randomSalt
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Store is a node's history.
type Store struct {
	cfg Config

	queue queue

	writing sync.Mutex // held by a goroutine that writes, or changes the list of files
	dirty   bool       // something is not synced
	synced  int64      // wall ms of the last sync
	failing bool       // the last write failed
	adopted bool       // see adopt
	closed  bool
	number  uint64

	unwanted []string // paths of files that were given up, and are yet to be removed

	mu     sync.RWMutex // guards the list, and the index of the file that is being written
	files  []*file      // oldest first
	active *file        // the last, if it is not sealed

	low      atomic.Bool
	recorded atomic.Uint64
	dropped  atomic.Uint64
	damaged  atomic.Uint64
}

// Stats are for metrics.
type Stats struct {
	Recorded uint64 // events written
	Dropped  uint64 // events not written: too many at once, the disk failed, or is almost full
	Damaged  uint64 // records and indexes that could not be read
	Bytes    int64
	Files    int
}

// Stats returns counts and sizes.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return Stats{Recorded: s.recorded.Load(), Dropped: s.dropped.Load(), Damaged: s.damaged.Load(), Bytes: s.bytesLocked(), Files: len(s.files)}
}

func (s *Store) bytesLocked() (sum int64) {
	for _, f := range s.files {
		sum += f.size
	}
	return sum
}

// Open reads which files there are, and changes none. A file that cannot be opened is logged and
// left alone.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	s := &Store{cfg: cfg, queue: queue{limit: cfg.QueueBytes, begun: make(chan struct{}, 1), full: make(chan struct{}, 1), watermark: map[uint32]watermark{}}}
	if err := cfg.FS.MkdirAll(cfg.Dir); err != nil {
		return nil, fmt.Errorf("history: make the directory: %w", err)
	}
	if err := cfg.FS.SyncDir(filepath.Dir(cfg.Dir)); err != nil {
		return nil, fmt.Errorf("history: make the directory: %w", err)
	}
	list, err := cfg.FS.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("history: list files: %w", err)
	}
	slices.SortFunc(list, func(a, b vfs.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	for _, entry := range list {
		number, ok := fileNumber(entry.Name)
		if !ok {
			continue
		}
		s.number = max(s.number, number)
		f, holes, err := openFile(cfg.FS, cfg.Dir, number, 2*cfg.SegmentSize)
		if err != nil {
			s.damaged.Add(1)
			cfg.Logger.Error("a file of the history cannot be opened and is left out", "file", entry.Name, "error", err)
			continue
		}
		if holes > 0 {
			s.damaged.Add(uint64(holes))
			cfg.Logger.Warn("a file of the history has places that cannot be read, after a crash or by damage; they are left out", "file", entry.Name, "places", holes)
		}
		s.files = append(s.files, f)
		for shard, r := range f.index.watermark {
			s.queue.reach(shard, r)
		}
	}
	return s, nil
}

// adopt continues the newest file, if it can, and seals all others: before the first write, a
// file that a crash left is finished.
func (s *Store) adopt() {
	if s.adopted {
		return
	}
	s.adopted = true
	now := s.cfg.NowMs()
	for i := 0; i < len(s.files); i++ {
		f := s.files[i]
		if f.sealed {
			continue
		}
		if i == len(s.files)-1 && f.startMs == s.slice(now) && f.data < s.cfg.SegmentSize && f.index.len() < indexLimit && f.handle.Truncate(f.data) == nil {
			s.mu.Lock()
			f.size, s.active = f.data, f
			s.mu.Unlock()
			continue
		}
		if f.index.len() == 0 {
			i--
			s.drop(f)
			continue
		}
		s.seal(f)
	}
}

// Run writes the recorded events until the context ends; then it writes the rest and closes the
// files.
func (s *Store) Run(ctx context.Context) error {
	tend := time.NewTicker(maintainInterval)
	defer tend.Stop()
	var write <-chan time.Time // nil while nothing waits: an idle node need not wake for it
	for {
		select {
		case <-ctx.Done():
			s.Close()
			return nil
		case <-s.queue.begun:
			write = time.After(writeInterval)
		case <-write:
			s.Flush()
		case <-s.queue.full:
			s.Flush()
		case <-tend.C:
			s.Maintain()
		}
	}
}

// Close writes the waiting events, syncs, and closes the files. Events that are recorded afterwards
// are lost, and queries find nothing.
func (s *Store) Close() {
	s.Flush()
	s.writing.Lock()
	defer s.writing.Unlock()
	s.closed = true
	s.sync()
	s.mu.Lock()
	list := s.files
	s.files, s.active = nil, nil
	s.mu.Unlock()
	for _, f := range list {
		f.use.Lock()
		_ = f.handle.Close()
		f.use.Unlock()
	}
}

// Flush writes the events that were recorded so far: when it returns they are written, by this or
// another goroutine.
func (s *Store) Flush() {
	s.writing.Lock()
	defer s.writing.Unlock()
	batch := s.queue.take()
	if s.closed || len(batch) == 0 {
		return
	}
	s.adopt()
	for _, chunk := range batch {
		s.write(chunk)
	}
	s.shrink()
	s.queue.recycle(batch)
}

// views are the files that may have something, held until release. find: see view.
func (s *Store) views(find func(*index) chain, may func(*file) bool) (list []view, release func()) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, f := range s.files {
		if !may(f) {
			continue
		}
		f.use.RLock()
		v := view{file: f, store: s, sealed: true, data: f.data, find: find, minMs: f.index.minMs, maxMs: f.index.maxMs}
		if x := f.mended.Load(); x != nil {
			v.show(x)
		} else if !f.sealed {
			v.show(&f.index)
		}
		list = append(list, v)
	}
	return list, func() {
		for i := range list {
			list[i].use.RUnlock()
		}
	}
}

// damage counts a record that cannot be read.
func (s *Store) damage(f *file) {
	s.damaged.Add(1)
	s.cfg.Logger.Error("a record of the history is damaged; it is left out", "file", f.name)
}
