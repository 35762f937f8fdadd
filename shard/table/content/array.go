package content

import (
	"iter"

	"carillon/timer"

	"github.com/cespare/xxhash/v2"
)

// Array is what a timer has collected: its payloads as JSON text, and the names of those that have
// one. The zero value is empty. It has no pointers.
type Array struct {
	payloads grown // "[a,b": the array as it is sent, without its last bracket
	names    grown // each is its length | partName, and its text
	Count    uint32
	Closed   bool // it takes no more
}

// partName is set in the length of a name, so that no character of a name is taken for a length.
const partName = 0x80

// The texts of an array, for the hash.
const (
	payloadText = 1 + iota
	nameText
	countWord
)

// Sent is how many bytes the array has as it is sent.
func (a *Array) Sent() int { return int(a.payloads.len) + 1 }

// FitsMore reports whether the array takes one more payload.
func (a *Array) FitsMore(payload []byte) bool {
	return !a.Closed && a.Sent()+1+len(payload) <= timer.MaxCollected
}

// Kept is how many bytes the array keeps.
func (a *Array) Kept() int { return int(a.payloads.len + a.names.len) }

// DropWork is the cost of dropping the array, where visiting a slot costs 1. Most is that of names.
func (a *Array) DropWork() int64 { return int64(a.names.len/2 + a.payloads.len>>8) }

// Collect appends a payload, and its name if it has one. It is amortised O(their bytes).
func (s *Store) Collect(h timer.Handle, a *Array, payload, name []byte) {
	s.sum -= countHash(h, a)
	bracket := "["
	if a.Count > 0 {
		bracket = ","
	}
	a.Count++
	s.sum += countHash(h, a)
	s.grow(h, payloadText, &a.payloads, []byte(bracket), payload)
	if len(name) > 0 {
		s.grow(h, nameText, &a.names, []byte{byte(len(name)) | partName}, name)
	}
}

// CloseArray makes an array take no more.
func (s *Store) CloseArray(h timer.Handle, a *Array) {
	s.sum -= countHash(h, a)
	a.Closed = true
	s.sum += countHash(h, a)
}

// DropArray releases all of an array. It is O(its bytes), as is every function below.
func (s *Store) DropArray(h timer.Handle, a *Array) {
	s.sum -= countHash(h, a)
	s.dropGrown(h, payloadText, &a.payloads)
	s.ForgetNames(h, a)
	*a = Array{}
}

// ForgetNames releases the names of an array.
func (s *Store) ForgetNames(h timer.Handle, a *Array) { s.dropGrown(h, nameText, &a.names) }

// ArrayHash returns an array's part of the sum.
func (s *Store) ArrayHash(h timer.Handle, a *Array) uint64 {
	return countHash(h, a) + s.grownHash(h, payloadText, &a.payloads) + s.grownHash(h, nameText, &a.names)
}

func countHash(h timer.Handle, a *Array) uint64 {
	if a.Count == 0 {
		return 0
	}
	word := uint64(a.Count) << 1
	if a.Closed {
		word |= 1
	}
	return Mix(uint64(h)<<8|countWord, word)
}

// Texts returns the payloads, without the last bracket, and the names. They are valid until the
// array changes.
func (s *Store) Texts(a *Array) (payloads, names []byte) {
	return s.grownBytes(&a.payloads), s.grownBytes(&a.names)
}

// LoadArray makes an array of texts that Texts returned.
func (s *Store) LoadArray(h timer.Handle, payloads, names []byte, count uint32, closed bool) Array {
	a := Array{Count: count, Closed: closed}
	s.sum += countHash(h, &a)
	s.grow(h, payloadText, &a.payloads, payloads)
	s.grow(h, nameText, &a.names, names)
	return a
}

func (s *Store) AppendArray(dst []byte, a *Array) []byte {
	return append(append(dst, s.grownBytes(&a.payloads)...), ']')
}

// Names are those of an array's payloads, in order.
func (s *Store) Names(a *Array) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for b := s.grownBytes(&a.names); len(b) > 0; {
			n := 1 + int(b[0]&^partName)
			if !yield(b[1:n]) {
				return
			}
			b = b[n:]
		}
	}
}

// WellFormedNames reports whether a text is one that Names can walk.
func WellFormedNames(b []byte) bool {
	for len(b) > 0 {
		n := int(b[0] &^ partName)
		if b[0]&partName == 0 || n == 0 || n > timer.MaxPart || len(b) < 1+n {
			return false
		}
		b = b[1+n:]
	}
	return true
}

// grown is bytes that grow at their end, in a block with room for more.
type grown struct{ ref, len uint32 }

// grownPage is how many bytes are hashed as one. An append hashes again only the last page.
const grownPage = 1 << 10

func (s *Store) grownBytes(g *grown) []byte {
	if g.len == 0 {
		return nil
	}
	return s.blocks.At(g.ref)[:g.len]
}

// grow appends to g. A block that is too small is replaced by one with half as much room again, so
// that each byte is copied twice on average.
func (s *Store) grow(h timer.Handle, kind uint64, g *grown, texts ...[]byte) {
	more := 0
	for _, text := range texts {
		more += len(text)
	}
	if more == 0 {
		return
	}
	b, need := s.grownBytes(g), int(g.len)+more
	from := int(g.len) &^ (grownPage - 1)
	s.sum -= pagesHash(h, kind, b, from)
	if g.len == 0 || need > len(s.blocks.At(g.ref)) {
		room := need
		if g.len > 0 {
			room += need / 2
		}
		ref, block := s.blocks.Alloc(room)
		copy(block, b)
		if g.len > 0 {
			s.blocks.Release(g.ref)
		}
		g.ref = ref
	}
	b = s.blocks.At(g.ref)[:g.len]
	for _, text := range texts {
		b = append(b, text...)
	}
	g.len = uint32(need)
	s.sum += pagesHash(h, kind, b, from)
}

func (s *Store) dropGrown(h timer.Handle, kind uint64, g *grown) {
	if g.len > 0 {
		s.sum -= s.grownHash(h, kind, g)
		s.blocks.Release(g.ref)
	}
	*g = grown{}
}

func (s *Store) grownHash(h timer.Handle, kind uint64, g *grown) uint64 {
	return pagesHash(h, kind, s.grownBytes(g), 0)
}

// pagesHash is the sum of the hashes of the pages from an offset on.
func pagesHash(h timer.Handle, kind uint64, b []byte, from int) (sum uint64) {
	for at := from; at < len(b); at += grownPage {
		sum += Mix(Mix(uint64(h)<<8|kind, uint64(at)), xxhash.Sum64(b[at:min(at+grownPage, len(b))]))
	}
	return sum
}
