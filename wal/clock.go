package wal

import (
	"time"
)

// The only place of the package that reads a clock; Options replaces both.

var processStart = time.Now()

func wallMs() int64             { return time.Now().UnixMilli() }
func sinceStart() time.Duration { return time.Since(processStart) }
