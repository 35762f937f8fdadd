package content

import (
	"bytes"
	"strings"
	"testing"

	"carillon/timer"
	"carillon/timer/encoding"
)

// TestBlobs: a blob is read as it was written, with any of its optional fields, and nothing is left
// when all are dropped.
func TestBlobs(t *testing.T) {
	s := New()
	callback := encoding.AppendCallback(nil, &timer.Callback{URL: "http://there/"})
	for name, b := range map[string]Blob{
		"plain":    {Tag: 7, Content: 1 << 60, Version: 1, CreatedMs: 1000, UpdatedMs: 1000},
		"callback": {Version: 1, Target: 1},
		"changed":  {Version: 300, CreatedMs: 1000, UpdatedMs: 3000, FirstMs: 2000},
		"series":   {Version: 1, Flags: IsSeries, Occurrence: 3, AskedMs: 0},
		"asked":    {Version: 1, CreatedMs: 1000, UpdatedMs: 1000, AskedMs: 10},
		"next":     {Version: 1, Flags: HasDue, DueMs: 5000},
	} {
		if b.Target != 0 {
			b.Target = s.Intern(callback)
		}
		b.ID, b.Rest = []byte(name), bytes.Repeat([]byte("r"), 300)
		ref := s.Put(9, &b)
		got := s.View(ref)
		if err := got.Check(got.Body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s.Sum() != s.Hash(9, &got) || s.Sum() == s.Hash(8, &got) {
			t.Errorf("%s: sum %x, hash %x", name, s.Sum(), s.Hash(9, &got))
		}
		if s.HasURL(ref) != (name == "callback") {
			t.Errorf("%s: has a URL: %v", name, s.HasURL(ref))
		}
		if string(got.ID) != name || !bytes.Equal(got.Rest, b.Rest) {
			t.Errorf("%s: id %q, %d bytes", name, got.ID, len(got.Rest))
		}
		b.ID, b.Rest, got.ID, got.Rest, got.Body = nil, nil, nil, nil, nil
		if got.Flags&(IsSeries|HasDue) != b.Flags&(IsSeries|HasDue) || got.Tag != b.Tag || got.Content != b.Content || got.Version != b.Version || got.CreatedMs != b.CreatedMs ||
			got.UpdatedMs != max(b.UpdatedMs, b.CreatedMs) || got.FirstMs != b.FirstMs || got.Occurrence != b.Occurrence || got.DueMs != b.DueMs || got.AskedMs != b.AskedMs {
			t.Errorf("%s: %+v, want %+v", name, got, b)
		}
		s.Drop(9, ref)
		if s.Sum() != 0 {
			t.Errorf("%s: sum %x is left", name, s.Sum())
		}
	}
}

// TestErrorTexts: a text, and the answer with it, replace those before.
func TestErrorTexts(t *testing.T) {
	s := New()
	ref := s.SetError(3, 0, "refused", nil, nil)
	if ref = s.SetError(3, ref, "reset", nil, nil); string(s.ErrorText(ref)) != "reset" || s.Sum() != s.ErrorHash(3, ref) {
		t.Errorf("%q, sum %x", s.ErrorText(ref), s.Sum())
	}
	alone := s.Sum()
	for _, long := range []int{1, 3000} {
		text, answer := strings.Repeat("t", encoding.MaxErr), bytes.Repeat([]byte("a"), long)
		ref = s.SetError(3, ref, text, answer, nil)
		if gotText, gotAnswer := s.Failure(ref); string(gotText) != text || !bytes.Equal(gotAnswer, answer) || s.Sum() != s.ErrorHash(3, ref) {
			t.Errorf("%d and %d bytes, sum %x", len(gotText), len(gotAnswer), s.Sum())
		}
	}
	if ref = s.SetError(3, ref, "reset", []byte("a"), nil); s.Sum() == alone {
		t.Error("an answer does not count in the sum")
	}
	withAnswer := s.Sum()
	for _, answer := range []string{"a", ""} {
		ref = s.SetError(3, ref, "", []byte(answer), []byte("log"))
		if text, got := s.Failure(ref); len(text) > 0 || string(got) != answer || string(s.Attempts(ref)) != "log" || s.Sum() == withAnswer || s.Sum() == alone {
			t.Errorf("%q, %q, %q, sum %x", text, got, s.Attempts(ref), s.Sum())
		}
	}
	if ref = s.SetError(3, ref, "", nil, nil); ref != 0 || s.Sum() != 0 || len(s.ErrorText(ref)) != 0 {
		t.Errorf("ref %d, sum %x are left", ref, s.Sum())
	}
}

// TestCallbacksAreShared: equal callbacks have one row until the last blob drops it. A Target of
// the past is then empty, though its row is used again.
func TestCallbacksAreShared(t *testing.T) {
	s := New()
	one := encoding.AppendCallback(nil, &timer.Callback{URL: "http://one/"})
	two := encoding.AppendCallback(nil, &timer.Callback{URL: "http://two/"})
	put := func(callback []byte) (row, ref uint32) {
		b := Blob{Version: 1, Target: s.Intern(callback), ID: []byte("a")}
		return b.Target, s.Put(1, &b)
	}
	row, first := put(one)
	again, second := put(one)
	past := s.TargetOf(row)
	if again != row || s.Callback(past).URL != "http://one/" {
		t.Fatalf("rows %d and %d of %+v", row, again, s.Callback(past))
	}
	for i, snapshot := range []uint32{1, 1, 2} {
		if b, sound := s.Define(row, snapshot); !sound || (b == nil) != (i == 1) {
			t.Errorf("definition %d, in snapshot %d: %q, sound %v", i, snapshot, b, sound)
		}
	}
	s.Drop(1, first)
	if s.Callback(past).URL == "" {
		t.Error("it is gone with the first blob")
	}
	s.Drop(1, second)
	other, _ := put(two)
	if other != row || s.Callback(past).URL != "" || s.CallbackAt(other).URL != "http://two/" {
		t.Errorf("row %d, then %d; the past one is %+v", row, other, s.Callback(past))
	}
	if none := s.Intern(nil); none != 0 || s.TargetOf(0) != 0 || s.CallbackAt(0).URL != "" {
		t.Errorf("no callback has row %d", none)
	}
}
