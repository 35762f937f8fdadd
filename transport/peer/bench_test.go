package peer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// cpu is the processor time of the process, both sides of a pair together.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchPair is pair, with a key on both sides or on none.
func benchPair(b *testing.B, keys bool, change func(*Config)) (a *member) {
	with := func(c *Config) {
		if keys {
			c.TLS = keyed(b, "k")
		}
	}
	addresses := newBook()
	start(b, addresses, loopback(b), helloOf(2), func(c *Config) {
		with(c)
		if change != nil {
			change(c)
		}
	})
	return start(b, addresses, loopback(b), helloOf(1), with)
}

func BenchmarkCalls(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchCalls(b, false) })
	b.Run("keyed", func(b *testing.B) { benchCalls(b, true) })
}

func benchCalls(b *testing.B, keys bool) {
	for _, atOnce := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("atOnce=%d", atOnce), func(b *testing.B) {
			a := benchPair(b, keys, nil)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			body := make([]byte, 300)
			if _, err := a.Call(ctx, 2, 1, body); err != nil {
				b.Fatal(err)
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			var wait sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			used := cpu(b)
			for range atOnce {
				wait.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := a.Call(ctx, 2, 1, body); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wait.Wait()
			b.ReportMetric(float64(cpu(b)-used)/1e3/float64(b.N), "cpu-µs/call")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

func BenchmarkFrames(b *testing.B) {
	b.Run("plain", func(b *testing.B) { benchFrames(b, false) })
	b.Run("keyed", func(b *testing.B) { benchFrames(b, true) })
}

func benchFrames(b *testing.B, keys bool) {
	for _, size := range []int{200, 16 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			var got atomic.Int64
			all := make(chan struct{})
			var want int64
			a := benchPair(b, keys, func(c *Config) {
				c.Handler.(*host).frame = func(uint64, []byte) {
					if got.Add(1) == want {
						close(all)
					}
				}
			})
			want = int64(b.N)
			frame := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			used := cpu(b)
			for sent := int64(0); sent < want; {
				if sent-got.Load() < 1000 && a.Send(2, frame) {
					sent++
				}
			}
			within(b, "last frame", all)
			b.ReportMetric(float64(cpu(b)-used)/1e3/float64(b.N), "cpu-µs/frame")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
		})
	}
}
