package backup

import (
	"bytes"
	"io"
	"testing"

	"carillon/test/sim/forged"
)

// FuzzReader: reading any file ends, and returns no more bytes than the file has.
func FuzzReader(f *testing.F) {
	var whole bytes.Buffer
	w, err := NewWriter(&whole, testHead, nil, nil)
	if err != nil {
		f.Fatal(err)
	}
	_, _ = w.Write(nil)
	_ = w.Begin(1, 2, 3, 4)
	_, _ = w.Write([]byte("state"))
	_ = w.End()
	_ = w.Close()
	f.Add(whole.Bytes())
	f.Add([]byte(magic))
	for _, form := range forged.Forms() {
		f.Add(append(whole.Bytes()[:whole.Len()/2:whole.Len()/2], form...))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := NewReader(bytes.NewReader(file))
		if err != nil {
			return
		}
		got := int64(0)
		for {
			if _, err := r.Next(); err != nil {
				break
			}
			n, _ := io.Copy(io.Discard, r)
			got += n
		}
		if got > int64(len(file)) {
			t.Errorf("%d bytes of %d", got, len(file))
		}
	})
}
