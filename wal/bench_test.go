package wal

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"carillon/internal/vfs"
	"carillon/test/testkit"
)

// BenchmarkAppend measures how long a writer waits for a durable 300 B frame while so many others
// do the same: run it with -benchtime=200000x or more for a meaningful p99.9.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s, err := Open(vfs.OS{}, b.TempDir(), Options{}, nil)
			must(b, err)
			ctx, cancel := context.WithCancel(context.Background())
			ran := make(chan error, 1)
			go func() { ran <- s.Run(ctx) }()
			b.SetBytes(300)
			b.ReportAllocs()
			b.ResetTimer()
			took := appendByMany(b, s, writers, b.N)
			b.StopTimer()
			cancel()
			must(b, <-ran)
			slices.Sort(took)
			for _, q := range []struct {
				name string
				at   float64
			}{{"p50-µs", 0.5}, {"p99-µs", 0.99}, {"p99.9-µs", 0.999}, {"max-µs", 1}} {
				i := min(int(q.at*float64(len(took))), len(took)-1)
				b.ReportMetric(float64(took[i].Microseconds()), q.name)
			}
		})
	}
}

// appendByMany appends n frames by so many waiting writers and returns each one's wait.
func appendByMany(b *testing.B, s *Stream, writers, n int) []time.Duration {
	took := make([]time.Duration, n)
	body := make([]byte, 300-frameHeaderBytes-recordHeaderBytes)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			f, done := NewFrame(), make(chan error, 1)
			finish := func(_ Position, err error) { done <- err }
			for i := w; i < n; i += writers {
				start := time.Now()
				f.Reset()
				f.Append(RecordEntries, uint32(w), body)
				err := s.Submit(f, true, finish)
				if err == nil {
					err = <-done
				}
				if err != nil {
					b.Error(err)
					return
				}
				took[i] = time.Since(start)
			}
		})
	}
	wg.Wait()
	return took
}

// BenchmarkReplay measures Open over 300 MB in frames of 300 B.
func BenchmarkReplay(b *testing.B) {
	const frames, size = 1_000_000, 300
	dir := b.TempDir()
	s, err := Open(vfs.OS{}, dir, Options{}, nil)
	must(b, err)
	list := make([]waiting, 1000)
	for i := range list {
		list[i].frame = NewFrame()
		list[i].frame.Append(RecordEntries, 1, make([]byte, size-frameHeaderBytes-recordHeaderBytes))
	}
	for range frames / len(list) {
		_, err := s.write(list)
		must(b, err)
	}
	must(b, s.Close())
	b.SetBytes(frames * size)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		s, err := Open(vfs.OS{}, dir, Options{}, func(Position, Record) error { n++; return nil })
		must(b, err)
		if n != frames {
			b.Fatalf("replayed %d", n)
		}
		must(b, s.Close())
	}
}

func BenchmarkFrameBuild(b *testing.B) {
	f, body := NewFrame(), make([]byte, 250)
	b.ReportAllocs()
	for b.Loop() {
		f.Reset()
		for shard := range uint32(16) {
			f.Append(RecordEntries, shard, body)
		}
		testSalt.seal(f.buf, header{seq: 1})
	}
}

// BenchmarkSegments measures what a frame costs by the size of segments, of which tidwall/wal keeps
// the open one in memory; and what it costs without tidwall/wal, whose bytes fileAppender writes.
func BenchmarkSegments(b *testing.B) {
	for _, size := range []int64{64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20} {
		for name, fsys := range map[string]vfs.FS{"tidwall": vfs.OS{}, "without": prefixFS{vfs.OS{}, b.TempDir()}} {
			b.Run(fmt.Sprintf("KiB=%d/%s", size>>10, name), func(b *testing.B) {
				dir := "log"
				if name == "tidwall" {
					dir = b.TempDir()
				}
				s, err := Open(fsys, dir, Options{SegmentBytes: size}, nil)
				must(b, err)
				list := make([]waiting, 1)
				list[0].frame = NewFrame()
				list[0].frame.Append(RecordEntries, 1, make([]byte, 4000))
				b.SetBytes(int64(list[0].frame.Len()))
				b.ReportAllocs()
				began := testkit.CPUTime(b)
				for b.Loop() {
					_, err := s.write(list)
					must(b, err)
				}
				b.ReportMetric(float64(testkit.CPUTime(b)-began)/float64(b.N), "cpu-ns/op")
				must(b, s.Close())
			})
		}
	}
}
