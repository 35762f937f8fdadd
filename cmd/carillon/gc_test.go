package main

import "testing"

func TestGCPercent(t *testing.T) {
	for _, c := range []struct {
		liveMiB uint64
		want    int
	}{{0, 400}, {1, 400}, {16, 200}, {64, 50}, {128, 20}, {320, 10}, {10_000, 10}} {
		if got := gcPercent(c.liveMiB << 20); got != c.want {
			t.Errorf("live heap of %d MiB: %d %%, want %d", c.liveMiB, got, c.want)
		}
	}
}
