package wal

import (
	"cmp"
	"time"
)

// Options of a stream; zero values mean the documented default.
type Options struct {
	// GenBytes is the size at which a generation is closed. Default 64 MiB.
	GenBytes int64
	// SegmentBytes is the size of a segment file, prepared ahead. tidwall/wal keeps the segment
	// being written in memory and grows it by copying, so small is quick. Default 1 MiB, at most
	// GenBytes and 256 MiB. Below 1 MiB it may not grow for a stream that exists: Open knows by it
	// whether a segment was cut off.
	SegmentBytes int64
	// QueueFrames bounds the frames that wait for the writer. Default 4096.
	QueueFrames int
	// FrameBytes is the largest frame that Submit takes. Default MaxFrameBytes, and no more.
	FrameBytes int
	// Replayers is on how many goroutines Open calls replay. With two or more each shard's records
	// come in order, on one of them; different shards' at once. Otherwise, the default, all come in
	// order on the goroutine that called Open.
	Replayers int
	// LowDiskBytes of free space, and the bytes of SetReserve, or less turn LowDisk on; a quarter
	// more turns it off. Default 256 MiB.
	LowDiskBytes uint64
	// Salt draws the salt of a new stream: nobody may be able to guess it. Default: at random.
	Salt func() uint64
	// NowMs is the wall clock in Unix milliseconds; frames carry it, nothing depends on it.
	NowMs func() int64
	// Monotonic is a clock that never steps, for the figures of Observe and the sampling
	// of free space. Its zero is arbitrary.
	Monotonic func() time.Duration
	// Observe receives the writer's work.
	Observe Observe
}

// Observe holds optional hooks for metrics. They run on the writer and must be quick.
type Observe struct {
	Begin func()                   // before each data sync of a batch
	Sync  func(took time.Duration) // after it
	Full  func(lack string)        // the log waits, as vfs.Lack says for what; "": it continues
}

// DefaultQueueFrames is QueueFrames if that is not set.
const DefaultQueueFrames = 4096

const (
	defaultGenBytes     = 64 << 20
	defaultSegmentBytes = 1 << 20
	maxSegmentBytes     = 256 << 20
	// leastSegmentBytes is the least that any release prepares: a part of the format.
	leastSegmentBytes   = 1 << 20
	defaultLowDiskBytes = 256 << 20
)

func (o Options) withDefaults() Options {
	if o.GenBytes <= 0 {
		o.GenBytes = defaultGenBytes
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = defaultSegmentBytes
	}
	o.SegmentBytes = min(o.SegmentBytes, o.GenBytes, maxSegmentBytes)
	if o.QueueFrames <= 0 {
		o.QueueFrames = DefaultQueueFrames
	}
	if o.FrameBytes <= 0 || o.FrameBytes > MaxFrameBytes {
		o.FrameBytes = MaxFrameBytes
	}
	o.LowDiskBytes = cmp.Or(o.LowDiskBytes, defaultLowDiskBytes)
	if o.Salt == nil {
		o.Salt = randomSalt
	}
	if o.NowMs == nil {
		o.NowMs = wallMs
	}
	if o.Monotonic == nil {
		o.Monotonic = sinceStart
	}
	return o
}
