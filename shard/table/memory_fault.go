package table

import "carillon/timer"

// MemoryFault is a fault that a simulation injects into a table. Most of them change one bit, as
// failing memory does.
type MemoryFault uint8

// The faults.
const (
	FaultOfSlot  MemoryFault = iota // in a timer's due time
	FaultOfBlob                     // in a timer's content
	FaultOfIndex                    // the index loses a timer's id
	FaultOfSum                      // in one of the sums that make up the hash

	MemoryFaults = iota // number of faults that a machine can cause

	// Faults of the program rather than of memory. A comparison of replicas must detect them.
	FaultOfFence // the last fence
	FaultOfHash  // the hash, as a different build would compute it
)

// Strike injects a fault, into the given timer if the fault is one of a timer. It reports whether
// it did. It is for tests and simulation.
func (t *Table) Strike(fault MemoryFault, topic timer.TopicID, id string, bit uint) bool {
	switch fault {
	case FaultOfSum:
		t.slotSum ^= 1 << (bit % 64)
		return true
	case FaultOfFence:
		t.fence += 1 << (bit % 8)
		return true
	case FaultOfHash:
		t.closedSum += 1 << (bit % 64)
		return true
	}
	h, ok := t.Lookup(topic, id)
	if !ok {
		return false
	}
	s := t.slab.at(h)
	v := t.view(s.ref)
	switch fault {
	case FaultOfSlot:
		s.whenMarks ^= 1 << (lowBits + bit%20)
	case FaultOfBlob:
		if len(v.rest) == 0 {
			return false
		}
		v.rest[len(v.rest)-1] ^= 1 << (bit % 8) // in the payload, which is last
	case FaultOfIndex:
		t.ids.remove(t.idHash(topic, v.id), uint32(h))
	}
	return true
}
