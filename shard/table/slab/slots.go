package slab

import (
	"math/bits"

	"carillon/timer"
)

const (
	// Chunks of 32 KiB keep a table with few timers small, and growing copies nothing.
	slotChunkBits = 10
	slotChunkLen  = 1 << slotChunkBits

	freeMark = 1 << 31 // in a page: the handle is free, the next free one follows
	packFrom = 16      // slots, at least: a page takes 4 KiB
	skipMost = 4096    // free handles that Visit passes over, which take as long as one timer
)

// Slots is the array of slots, by handle. Its zero value is empty. All operations are O(1), but
// Pack.
//
// A slot is in the row of its handle's number. Packed, used slots alone have a row, and a free
// handle costs 4 bytes: a shard that was divided keeps the handles of all timers that it ever had,
// and would keep as much memory. Rows are local to a replica.
type Slots struct {
	chunks []*[slotChunkLen]Slot // by row
	// High is the highest handle ever used.
	High timer.Handle
	// Free is the first free slot. The order of the free list decides future handles, so it is
	// replicated.
	Free   timer.Handle
	Unused int // number of free slots

	pages   []*page        // packed: by handle
	handles []timer.Handle // packed: by row; its length is the number of rows
	spare   []uint32       // packed: rows without a slot
}

// page has of some handles the row, or freeMark and the next free handle.
type page struct {
	rows [slotChunkLen]uint32
	used [slotChunkLen / 64]uint64 // a bit for each that has a row
}

// vacant is the slot of all free handles of packed slots. It is never written.
var vacant Slot

// At returns the slot of a handle, which must be at most high. That of a free handle must not be
// written.
func (s *Slots) At(h timer.Handle) *Slot {
	if s.pages != nil {
		return s.packedAt(h)
	}
	return &s.chunks[h>>slotChunkBits][h&(slotChunkLen-1)]
}

//go:noinline
func (s *Slots) packedAt(h timer.Handle) *Slot {
	if row := s.Row(h); row != 0 {
		return s.row(row)
	}
	return &vacant
}

func (s *Slots) row(row uint32) *Slot {
	return &s.chunks[row>>slotChunkBits][row&(slotChunkLen-1)]
}

func (s *Slots) page(h timer.Handle) (p *page, at timer.Handle) {
	return s.pages[h>>slotChunkBits], h & (slotChunkLen - 1)
}

// setRow sets the row of a handle, or that it has none, and which free handle follows.
func (s *Slots) setRow(h timer.Handle, row uint32) {
	p, at := s.page(h)
	if p.rows[at] = row; row&freeMark == 0 {
		p.used[at>>6] |= 1 << (at & 63)
	} else {
		p.used[at>>6] &^= 1 << (at & 63)
	}
}

// Row returns the row of a used handle. Packed, it is 0 for a free one.
func (s *Slots) Row(h timer.Handle) uint32 {
	if s.pages == nil {
		return uint32(h)
	}
	if p, at := s.page(h); p.rows[at]&freeMark == 0 {
		return p.rows[at]
	}
	return 0
}

// Handle returns the handle of a row.
func (s *Slots) Handle(row uint32) timer.Handle {
	if s.pages == nil {
		return timer.Handle(row)
	}
	return s.handles[row]
}

// Rows returns the highest row ever used.
func (s *Slots) Rows() int {
	if s.pages == nil {
		return int(s.High)
	}
	return len(s.handles) - 1
}

// NextFree returns the free handle that follows a free one in the list.
func (s *Slots) NextFree(h timer.Handle) timer.Handle {
	if s.pages == nil {
		return timer.Handle(s.At(h).Ref)
	}
	p, at := s.page(h)
	return timer.Handle(p.rows[at] &^ freeMark)
}

// Visit returns the slot to visit after h, for a visit of all up to high: packed, it passes over
// free ones, and may return the last of these.
func (s *Slots) Visit(h, high timer.Handle) (timer.Handle, *Slot) {
	if s.pages != nil {
		return s.packedVisit(h, high)
	}
	h++
	return h, &s.chunks[h>>slotChunkBits][h&(slotChunkLen-1)]
}

//go:noinline
func (s *Slots) packedVisit(h, high timer.Handle) (timer.Handle, *Slot) {
	h++
	for most := min(high, h+skipMost); h <= most; h = (h | 63) + 1 {
		p, at := s.page(h)
		if used := p.used[at>>6] >> (at & 63); used != 0 {
			skip := timer.Handle(bits.TrailingZeros64(used))
			if h += skip; h <= high {
				return h, s.row(p.rows[at+skip])
			}
			break
		}
	}
	h = min(h, high)
	return h, s.packedAt(h)
}

// Take makes the slot of the first free handle, or of a new one, and returns both.
func (s *Slots) Take() (timer.Handle, *Slot) {
	h := s.Free
	if h != 0 {
		s.Free = s.NextFree(h)
		s.Unused--
	} else {
		s.High++
		h = s.High
		s.Extend(h)
	}
	slot := s.occupy(h)
	*slot = Slot{}
	return h, slot
}

// occupy gives a handle a row.
func (s *Slots) occupy(h timer.Handle) *Slot {
	if s.pages == nil {
		return s.At(h)
	}
	var row uint32
	if last := len(s.spare) - 1; last >= 0 {
		row, s.spare = s.spare[last], s.spare[:last]
	} else {
		row = uint32(len(s.handles))
		s.handles = append(s.handles, 0)
		extend(&s.chunks, row)
	}
	s.handles[row] = h
	s.setRow(h, row)
	return s.row(row)
}

// Give frees the slot of a used handle.
func (s *Slots) Give(h timer.Handle) {
	*s.At(h) = Slot{}
	if s.pages == nil {
		s.At(h).Ref = uint32(s.Free)
	} else {
		row := s.Row(h)
		s.spare = append(s.spare, row)
		s.handles[row] = 0
		s.setRow(h, freeMark|uint32(s.Free))
	}
	s.Free = h
	s.Unused++
}

// Extend makes room for handle h.
func (s *Slots) Extend(h timer.Handle) {
	if s.pages == nil {
		extend(&s.chunks, uint32(h))
	} else {
		extend(&s.pages, uint32(h))
	}
}

func extend[T any](chunks *[]*T, n uint32) {
	for i := int(n >> slotChunkBits); len(*chunks) <= i; {
		*chunks = append(*chunks, nil)
	}
	if c := &(*chunks)[n>>slotChunkBits]; *c == nil {
		*c = new(T)
	}
}

// CanPack reports whether Pack saves memory: a third of the rows is free.
func (s *Slots) CanPack() bool {
	if s.pages != nil {
		return 3*len(s.spare) >= len(s.handles)
	}
	return s.High >= packFrom && 3*s.Unused >= int(s.High)
}

// LoadPacked makes slots packed that are yet to be loaded.
func (s *Slots) LoadPacked() { s.pages, s.handles = []*page{}, make([]timer.Handle, 1) }

// Loaded reports whether Load or LoadFree was called for a handle for which there is room.
func (s *Slots) Loaded(h timer.Handle) bool {
	if s.pages == nil {
		slot := s.At(h)
		return slot.State() != 0 || slot.Rev != 0
	}
	p, at := s.page(h)
	return p.rows[at] != 0
}

// Load sets the slot of a handle that is not loaded, and for which there is room.
func (s *Slots) Load(h timer.Handle, slot *Slot) { *s.occupy(h) = *slot }

// LoadFree makes a handle free, for which there is room. Until LoadedFree it is marked.
func (s *Slots) LoadFree(h, next timer.Handle) {
	if s.pages == nil {
		*s.At(h) = Slot{Ref: uint32(next), Rev: 1}
	} else {
		s.setRow(h, freeMark|uint32(next))
	}
}

// LoadedFree ends the loading of a free handle.
func (s *Slots) LoadedFree(h timer.Handle) {
	if s.pages == nil {
		s.At(h).Rev = 0
	}
}

// Pack packs the slots: all get other rows. Cost: O(High).
func (s *Slots) Pack() {
	old := *s
	s.chunks, s.spare = nil, nil
	s.pages, s.handles = make([]*page, 0, len(old.chunks)), make([]timer.Handle, 1, int(s.High)-s.Unused+1)
	for h := timer.Handle(1); h <= s.High; h++ {
		s.Extend(h)
		if slot := old.At(h); slot.State() != 0 {
			*s.occupy(h) = *slot
		} else {
			s.setRow(h, freeMark|uint32(old.NextFree(h)))
		}
	}
}

func (s *Slots) Memory() int64 {
	const chunkBytes, pageBytes = slotChunkLen * 32, slotChunkLen*4 + slotChunkLen/8
	return allocated(s.chunks)*chunkBytes + allocated(s.pages)*pageBytes + int64(cap(s.chunks)+cap(s.pages))*8 + int64(cap(s.handles)+cap(s.spare))*4
}

func allocated[T any](chunks []*T) (n int64) {
	for _, c := range chunks {
		if c != nil {
			n++
		}
	}
	return n
}
