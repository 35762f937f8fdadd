//go:build !unix

package loadtest

import "time"

// processCPU is not known here: reports show 0.
func processCPU() time.Duration { return 0 }
