package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"carillon/internal/secret"
)

// ErrVoid means that this copy of a state does not count, because the state begins again later in
// the file.
var ErrVoid = errors.New("the state is repeated from its start")

// Reader reads a backup: Next for each state, whose bytes are then read from the Reader. It is not
// for concurrent use.
type Reader struct {
	from   *bufio.Reader
	offset int64  // in the file, of the next record
	number uint64 // of the next record
	sum    hash.Hash
	head   Head
	text   []byte // of the head
	box    *box
	buf    []byte

	inside bool // within a state
	left   []byte
	void   *State // the state that began within another one
	err    error
}

// NewReader reads the head. Its error describes the fault of the file.
func NewReader(from io.Reader) (*Reader, error) {
	r := &Reader{from: bufio.NewReaderSize(from, 64<<10), sum: sha256.New()}
	first := make([]byte, len(magic))
	if _, err := io.ReadFull(r.from, first); err != nil || string(first) != magic {
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("backup: %w", err)
		}
		return nil, errors.New("backup: this is not a backup")
	}
	_, _ = r.sum.Write(first)
	r.offset = int64(len(magic))
	kind, payload, err := r.record()
	if err != nil {
		return nil, err
	}
	if kind != kindHead {
		return nil, r.damaged("it begins with a record of kind %d", kind)
	}
	r.text = bytes.Clone(payload)
	if err := json.Unmarshal(payload, &r.head); err != nil {
		return nil, r.damaged("its head cannot be read: %v", err)
	}
	if r.head.Version != version {
		return nil, fmt.Errorf("backup: it has version %d, this release reads %d: restore it with the release that wrote it, or a newer one", r.head.Version, version)
	}
	return r, nil
}

// Head is the file's description of itself.
func (r *Reader) Head() Head { return r.head }

// Unlock sets the keys for an encrypted file.
func (r *Reader) Unlock(keys *secret.Keys) error {
	if r.head.Key == "" {
		return nil
	}
	key, err := keys.Open(secret.Backup, r.head.Key)
	if err == nil {
		r.box, err = newBox([]byte(key), r.text)
	}
	if err != nil {
		return fmt.Errorf("backup: it is encrypted: %w", err)
	}
	return nil
}

func (r *Reader) damaged(format string, args ...any) error {
	r.err = fmt.Errorf("backup: damaged at byte %d: %s", r.offset, fmt.Sprintf(format, args...))
	return r.err
}

// record reads the next record. Its payload is valid until the record after it.
func (r *Reader) record() (kind byte, payload []byte, err error) {
	if r.err != nil {
		return 0, nil, r.err
	}
	var header [headerBytes]byte
	if err := r.fill(header[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(header[1:])
	if n > maxPayload {
		return 0, nil, r.damaged("a record of %d bytes", n)
	}
	if cap(r.buf) < int(n)+sumBytes {
		r.buf = make([]byte, n+sumBytes, max(int(n)+sumBytes, dataPerPart+1<<10))
	}
	r.buf = r.buf[:n+sumBytes]
	if err := r.fill(r.buf); err != nil {
		return 0, nil, err
	}
	payload = r.buf[:n]
	if checksum(r.number, header[:], payload) != binary.LittleEndian.Uint64(r.buf[n:]) {
		return 0, nil, r.damaged("the checksum of record %d does not fit", r.number)
	}
	kind = header[0]
	switch kind {
	case kindFailure:
		r.err = fmt.Errorf("backup: it is not whole: the node that wrote it gave up: %q", payload)
		return 0, nil, r.err
	case kindLast:
		if !bytes.Equal(payload, r.sum.Sum(binary.LittleEndian.AppendUint64(nil, r.number))) {
			return 0, nil, r.damaged("the checksum of the whole does not fit")
		}
		switch _, err := r.from.ReadByte(); {
		case err == nil:
			return 0, nil, r.damaged("something follows its end")
		case !errors.Is(err, io.EOF):
			r.err = fmt.Errorf("backup: %w", err)
			return 0, nil, r.err
		}
	}
	_, _ = r.sum.Write(header[:])
	_, _ = r.sum.Write(r.buf)
	r.offset += int64(headerBytes + len(r.buf))
	r.number++
	return kind, payload, nil
}

func (r *Reader) fill(b []byte) error {
	_, err := io.ReadFull(r.from, b)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return r.damaged("the file ends here: it was cut")
	case err != nil:
		r.err = fmt.Errorf("backup: %w", err)
		return r.err
	}
	return nil
}

// Verify reads to the end of the file. It needs no key.
func (r *Reader) Verify() error {
	for {
		if kind, _, err := r.record(); err != nil || kind == kindLast {
			return err
		}
	}
}

// open returns a record's decrypted payload.
func (r *Reader) open(kind byte, payload []byte) ([]byte, error) {
	if r.head.Key == "" {
		return payload, nil
	}
	if r.box == nil {
		return nil, errors.New("backup: it is encrypted")
	}
	plain, err := r.box.aead.Open(payload[:0], r.box.nonce(r.number-1), payload, r.box.bound(kind))
	if err != nil {
		return nil, r.damaged("record %d cannot be decrypted", r.number-1)
	}
	return plain, nil
}

// Next advances to the next state. It returns io.EOF after the last, when the whole file is
// verified.
func (r *Reader) Next() (State, error) {
	for r.inside {
		if _, err := r.part(); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, ErrVoid) {
			return State{}, err
		}
	}
	if s := r.void; s != nil {
		r.void, r.inside = nil, true
		return *s, nil
	}
	kind, payload, err := r.record()
	switch {
	case err != nil:
		return State{}, err
	case kind == kindLast:
		r.err = io.EOF
		return State{}, io.EOF
	case kind != kindBegin:
		return State{}, r.damaged("a record of kind %d between states", kind)
	}
	s, err := r.begin(payload)
	r.inside = err == nil
	return s, err
}

func (r *Reader) begin(payload []byte) (State, error) {
	plain, err := r.open(kindBegin, payload)
	if err != nil {
		return State{}, err
	}
	s, err := decodeState(plain)
	if err != nil {
		return s, r.damaged("%v", err)
	}
	return s, nil
}

// Read reads the current state. ErrVoid means that the bytes read so far do not count.
func (r *Reader) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		if !r.inside {
			return 0, io.EOF
		}
		var err error
		if r.left, err = r.part(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// part reads the next part of a state; io.EOF at its end.
func (r *Reader) part() ([]byte, error) {
	r.left = nil
	kind, payload, err := r.record()
	if err != nil {
		return nil, err
	}
	switch kind {
	case kindPart:
		return r.open(kind, payload)
	case kindEnd:
		if _, err := r.open(kind, payload); err != nil {
			return nil, err
		}
		r.inside = false
		return nil, io.EOF
	case kindBegin:
		s, err := r.begin(payload)
		if err != nil {
			return nil, err
		}
		r.void, r.inside = &s, false
		return nil, ErrVoid
	}
	return nil, r.damaged("a record of kind %d inside a state", kind)
}
