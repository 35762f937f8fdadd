package wal

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// The only place of the package that reads a clock or draws by chance; Options replaces all three.

var processStart = time.Now()

func wallMs() int64             { return time.Now().UnixMilli() }
func sinceStart() time.Duration { return time.Since(processStart) }

func randomSalt() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
