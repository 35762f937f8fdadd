package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"carillon/internal/secret"
	"carillon/timer"
)

// Writer writes a backup: Begin, Write and End for each state, then Close, or Fail. It is not for
// concurrent use.
type Writer struct {
	to     io.Writer
	number uint64 // of the next record
	sum    hash.Hash
	box    *box
	part   []byte
	record []byte
	err    error
}

// NewWriter writes the head. With keys everything after the head is encrypted, by a key of the
// file's own that random makes and keys seal.
func NewWriter(to io.Writer, head Head, keys *secret.Keys, random func([]byte)) (*Writer, error) {
	w := &Writer{to: to, sum: sha256.New()}
	head.Version, head.Key = version, ""
	var key []byte
	if keys != nil {
		key = make([]byte, keyBytes)
		random(key)
		head.Key = keys.SealBytes(secret.Backup, string(key))
	}
	b, err := json.Marshal(head)
	if err == nil && keys != nil {
		w.box, err = newBox(key, b)
	}
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	w.write([]byte(magic))
	w.put(kindHead, b)
	return w, w.err
}

func (w *Writer) write(b []byte) {
	if w.err != nil {
		return
	}
	_, _ = w.sum.Write(b)
	if _, err := w.to.Write(b); err != nil {
		w.err = fmt.Errorf("backup: %w", err)
	}
}

func (w *Writer) put(kind byte, payload []byte) {
	b := append(w.record[:0], kind, 0, 0, 0, 0)
	if w.box != nil && (kind == kindBegin || kind == kindPart || kind == kindEnd) {
		b = w.box.aead.Seal(b, w.box.nonce(w.number), payload, w.box.bound(kind))
	} else {
		b = append(b, payload...)
	}
	binary.LittleEndian.PutUint32(b[1:], uint32(len(b)-headerBytes))
	w.record = binary.LittleEndian.AppendUint64(b, checksum(w.number, b[:headerBytes], b[headerBytes:]))
	w.number++
	w.write(w.record)
}

// Begin begins a state. It voids a state that has not ended.
func (w *Writer) Begin(group timer.ShardID, index, size, hash uint64) error {
	w.part = w.part[:0]
	w.put(kindBegin, (&State{group, index, size, hash}).encode())
	return w.err
}

// Write adds bytes to the state.
func (w *Writer) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), dataPerPart-len(w.part))
		w.part, rest = append(w.part, rest[:n]...), rest[n:]
		if len(w.part) == dataPerPart {
			w.flush()
		}
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

func (w *Writer) flush() {
	if len(w.part) > 0 {
		w.put(kindPart, w.part)
		w.part = w.part[:0]
	}
}

// End ends a state.
func (w *Writer) End() error {
	w.flush()
	w.put(kindEnd, nil)
	return w.err
}

// Close ends the file.
func (w *Writer) Close() error {
	w.put(kindLast, w.sum.Sum(binary.LittleEndian.AppendUint64(nil, w.number)))
	if w.err == nil {
		w.err = errors.New("backup: it has ended")
		return nil
	}
	return w.err
}

// Fail ends the file with the reason why it is incomplete. Readers refuse it. The error is that of
// the file itself, which may be the reason.
func (w *Writer) Fail(why error) error {
	text := why.Error()
	w.put(kindFailure, []byte(text[:min(len(text), 1000)]))
	return w.err
}
