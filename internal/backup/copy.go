package backup

import "io"

// Copy copies a backup and verifies it on the way. It returns its head and size. After an error
// what was written is of no use.
func Copy(to io.Writer, from io.Reader) (Head, int64, error) {
	r, err := NewReader(io.TeeReader(from, to))
	if err == nil {
		err = r.Verify()
	}
	if err != nil {
		return Head{}, 0, err
	}
	return r.head, r.offset, nil
}
