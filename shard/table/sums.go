package table

import (
	"github.com/cespare/xxhash/v2"

	"carillon/timer"
)

// addSlot and addBlob keep the sums of which the state hash is made. Audit and Snapshot make them
// anew.
func (t *Table) addSlot(x uint64) { t.slotSum += x }

func (t *Table) addBlob(x uint64) { t.blobSum += x }

// errorSum returns the part of the last error's text in blobSum.
func (t *Table) errorSum(h timer.Handle, r *attemptState) uint64 {
	if text := t.errorText(r); len(text) > 0 {
		return errorHash(h, text)
	}
	return 0
}

func (t *Table) soundTarget(row uint32) bool {
	if row == 0 {
		return true
	}
	g := t.targets.at(row)
	return xxhash.Sum64(g.bytes(&t.blobs)) == g.hash
}

func (t *Table) sumClosed() (sum uint64) {
	for _, tomb := range t.closedTopics {
		sum += tomb.hash()
	}
	return sum
}
