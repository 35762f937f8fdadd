package main

import "testing"

func TestGCPercent(t *testing.T) {
	for _, c := range []struct {
		liveMiB uint64
		want    int
	}{{0, 800}, {1, 800}, {16, 400}, {64, 100}, {128, 50}, {320, 20}, {10_000, 20}} {
		if got := gcPercent(c.liveMiB << 20); got != c.want {
			t.Errorf("live heap of %d MiB: %d %%, want %d", c.liveMiB, got, c.want)
		}
	}
}
