package backup

import "io"

// Copy copies a backup and verifies it on the way. It returns its head and size. After an error
// what was written is of no use.
func Copy(to io.Writer, from io.Reader) (Head, int64, error) {
	size := &counter{to: to}
	r, err := NewReader(io.TeeReader(from, size))
	if err != nil {
		return Head{}, size.n, err
	}
	err = r.Verify()
	return r.Head(), size.n, err
}

// counter counts the written bytes.
type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}
