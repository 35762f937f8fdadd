package history

import (
	"crypto/rand"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// salt is a file's secret: random, in its head, never shown. A record begins with its mark, and all
// sums are seeded with it, so bytes that a client wrote can be neither a record nor an index.
type salt uint64

// mark is what each record of the file begins with. A reader that looks for records finds no others
// by it.
func (s salt) mark() uint32 { return uint32(s) }

func (s salt) sum64(b []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(uint64(s))
	_, _ = d.Write(b)
	return d.Sum64()
}

func (s salt) sum(b []byte) uint32 { return uint32(s.sum64(b)) }

// randomSalt is the default of Config.Salt: the only place of the package that draws by chance.
func randomSalt() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
