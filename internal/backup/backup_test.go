package backup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"carillon/internal/secret"
	"carillon/test/testkit"
)

func counting(b []byte) {
	for i := range b {
		b[i] = byte(i)
	}
}

func testKeys(t *testing.T, first byte) *secret.Keys {
	t.Helper()
	keys, err := secret.New([][]byte{bytes.Repeat([]byte{first}, secret.KeyBytes)})
	testkit.Must(t, err)
	return keys
}

var testHead = Head{ClusterID: "c0ffee", Shards: 2, Level: 2, Release: "test", TimeMs: 1_800_000_000_000}

// write makes a backup of a state that never ends, and so is void, and of the given states.
func write(t *testing.T, keys *secret.Keys, states [][]byte) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := NewWriter(&file, testHead, keys, counting)
	testkit.Must(t, err)
	steps := []func() error{
		func() error { return w.Begin(1, 7, 8, 9) },
		func() error { _, err := w.Write(make([]byte, dataPerPart+1)); return err },
	}
	for i, s := range states {
		steps = append(steps,
			func() error { return w.Begin(2, uint64(i), uint64(len(s)), 11) },
			func() error { _, err := w.Write(s); return err },
			w.End)
	}
	for i, step := range append(steps, w.Close) {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	return file.Bytes()
}

// read returns the valid states.
func read(file []byte, keys *secret.Keys) (states [][]byte, err error) {
	r, err := NewReader(bytes.NewReader(file))
	if err == nil {
		err = r.Unlock(keys)
	}
	for err == nil {
		if _, err = r.Next(); err != nil {
			break
		}
		var state []byte
		if state, err = io.ReadAll(r); err == nil {
			states = append(states, state)
		} else if errors.Is(err, ErrVoid) {
			err = nil
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return states, err
}

func TestRoundTrip(t *testing.T) {
	states := [][]byte{bytes.Repeat([]byte("abcdefg"), dataPerPart/3), {}, []byte("x")}
	for _, keys := range []*secret.Keys{nil, testKeys(t, 1)} {
		file := write(t, keys, states)
		got, err := read(file, keys)
		if err != nil || !slices.EqualFunc(got, states, bytes.Equal) {
			t.Errorf("encrypted %t: read %d states, %v", keys != nil, len(got), err)
		}
		if clear := bytes.Contains(file, []byte("abcdefgabcdefg")); clear == (keys != nil) {
			t.Errorf("encrypted %t: in the clear %t", keys != nil, clear)
		}
		r, err := NewReader(bytes.NewReader(file))
		testkit.Must(t, err)
		if err := r.Verify(); err != nil { // needs no key
			t.Error(err)
		}
		h := r.Head()
		if h.Version, h.Key = 0, ""; h != testHead {
			t.Errorf("head %+v", h)
		}
	}
}

// A reader finds every cut and every flipped bit, and returns only verified bytes.
func TestDamageIsFound(t *testing.T) {
	states := [][]byte{[]byte("first"), []byte("second")}
	var file bytes.Buffer
	w, err := NewWriter(&file, testHead, nil, nil)
	testkit.Must(t, err)
	for _, s := range states {
		testkit.Must(t, w.Begin(1, 0, 0, 0))
		if _, err := w.Write(s); err != nil {
			t.Fatal(err)
		}
		testkit.Must(t, w.End())
	}
	testkit.Must(t, w.Close())
	whole := file.Bytes()
	check := func(what string, at int, damaged []byte) {
		t.Helper()
		got, err := read(damaged, nil)
		if err == nil {
			t.Fatalf("%s at %d of %d is not found", what, at, len(whole))
		}
		for i := range got {
			if i >= len(states) || !bytes.Equal(got[i], states[i]) {
				t.Fatalf("%s at %d: state %d is %q", what, at, i, got[i])
			}
		}
	}
	for at := range whole {
		check("a cut", at, whole[:at])
		for bit := range 8 {
			damaged := bytes.Clone(whole)
			damaged[at] ^= 1 << bit
			check("a flipped bit", at, damaged)
		}
	}
	check("a byte more", len(whole), append(bytes.Clone(whole), 0))
}

func TestEncryptedNeedsItsKey(t *testing.T) {
	file := write(t, testKeys(t, 1), [][]byte{[]byte("x")})
	for _, keys := range []*secret.Keys{nil, testKeys(t, 2)} {
		if _, err := read(file, keys); err == nil || !strings.Contains(err.Error(), "it is encrypted: this node lacks the secrets key") {
			t.Errorf("got %v", err)
		}
	}
}

// Without the key an encrypted backup cannot be given another head, even with matching checksums.
func TestEncryptedIsBoundToItsHead(t *testing.T) {
	keys := testKeys(t, 1)
	file := write(t, keys, [][]byte{[]byte("x")})
	at := bytes.Index(file, []byte("c0ffee"))
	start, end := len(magic), len(magic)+headerBytes+int(binary.LittleEndian.Uint32(file[len(magic)+1:]))
	file[at]++
	binary.LittleEndian.PutUint64(file[end:], checksum(0, file[start:start+headerBytes], file[start+headerBytes:end]))
	if _, err := read(file, keys); err == nil || !strings.Contains(err.Error(), "cannot be decrypted") {
		t.Errorf("got %v", err)
	}
}

func TestFailureIsSaid(t *testing.T) {
	var file bytes.Buffer
	w, err := NewWriter(&file, testHead, nil, nil)
	testkit.Must(t, err)
	testkit.Must(t, w.Fail(errors.New("shard 2: no leader")))
	if _, err := read(file.Bytes(), nil); err == nil || !strings.Contains(err.Error(), "shard 2: no leader") {
		t.Errorf("got %v", err)
	}
}

// TestErrorAtTheEnd: a connection that breaks after the last byte is no damage of the file, and a
// byte after it is.
func TestErrorAtTheEnd(t *testing.T) {
	file := write(t, nil, [][]byte{{1}})
	broken := errors.New("the connection is broken")
	if _, _, err := Copy(io.Discard, io.MultiReader(bytes.NewReader(file), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("a broken connection: %v", err)
	}
	if _, _, err := Copy(io.Discard, bytes.NewReader(append(file, 0))); err == nil || !strings.Contains(err.Error(), "something follows its end") {
		t.Errorf("a byte after the end: %v", err)
	}
}
