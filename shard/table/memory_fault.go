package table

import "carillon/timer"

// MemoryFault is what a simulated machine does to a table by itself: one bit of it changes.
type MemoryFault uint8

// The faults.
const (
	FaultOfSlot  MemoryFault = iota // when a timer is due
	FaultOfBlob                     // what a client said of it
	FaultOfIndex                    // its id does not lead to it any more
	FaultOfSum                      // one of the sums that the hash is made of

	MemoryFaults = iota // so many that a machine makes

	// What a program's own fault does: no bit of memory changed by itself, so that only other
	// replicas see it.
	FaultOfFence // the last fence
	FaultOfHash  // the hash, as another build would make it
)

// Strike has a fault happen, to a timer if it is of one. It is for tests and simulation. It says
// whether it has.
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
		v.rest[len(v.rest)-1] ^= 1 << (bit % 8) // of the payload, which comes last
	case FaultOfIndex:
		t.ids.remove(t.idHash(topic, v.id), uint32(h))
	}
	return true
}
