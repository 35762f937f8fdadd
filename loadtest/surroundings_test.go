package loadtest

import (
	"math"
	"testing"
)

func TestMedianSince(t *testing.T) {
	inf := math.Inf(1)
	for _, tt := range []struct {
		before, after buckets
		want          float64
	}{
		{nil, nil, 0},
		{nil, buckets{0.001: 0, 0.002: 10, inf: 10}, 1.5},
		{buckets{0.001: 100, 0.002: 100, inf: 100}, buckets{0.001: 100, 0.002: 104, inf: 104}, 1.5},
		{buckets{0.001: 5, inf: 5}, buckets{0.001: 5, inf: 5}, 0},
		{nil, buckets{0.001: 3, 0.002: 3, 0.004: 4, inf: 4}, 2.0 / 3},
		{nil, buckets{0.001: 1, inf: 10}, 0}, // slower than anything that was counted apart
	} {
		if got := tt.after.medianSince(tt.before); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%v since %v: %v, want %v", tt.after, tt.before, got, tt.want)
		}
	}
}
