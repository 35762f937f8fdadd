package timer

// Saving writes a state in pieces, as it was when the Saving began, while commands change the
// current state.
type Saving interface {
	// Hash returns the hash of the saved state.
	Hash() uint64
	// Next appends the next piece of about budget bytes and reports whether it was the last.
	Next(dst []byte, budget int) (out []byte, done bool)
	// Held returns the bytes of memory held in addition to the state.
	Held() int64
	// Sound reports, after the last piece, whether the written state matches its hash.
	Sound() bool
	// Abort ends the Saving early. It may be called at any time, and more than once.
	Abort()
}
