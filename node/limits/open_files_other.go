//go:build !unix

package limits

// openFileLimit is how many files this process may have open; 0 is as many as it likes, or unknown.
func openFileLimit() uint64 { return 0 }
