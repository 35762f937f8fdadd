// Package reuse keeps small lists for their next elements.
package reuse

// maxSpare is the largest capacity of an empty list that is kept for reuse.
const maxSpare = 64

// Emptied clears a list whose elements are done with and returns it for reuse, or nil if its
// capacity exceeds maxSpare.
func Emptied[T any](list []T) []T {
	if cap(list) > maxSpare {
		return nil
	}
	clear(list)
	return list[:0]
}
