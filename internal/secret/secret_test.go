package secret

import (
	"bytes"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func keysOf(t testing.TB, of string) *Keys {
	t.Helper()
	var list [][]byte
	for _, c := range []byte(of) {
		list = append(list, bytes.Repeat([]byte{c}, KeyBytes))
	}
	k, err := New(list)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSealAndOpen(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := keysOf(t, "ab")
		at := OfTimer(rapid.Uint32().Draw(rt, "topic"), rapid.String().Draw(rt, "header"))
		text := rapid.String().Draw(rt, "text")
		envelope := k.SealBytes(at, text)
		switch {
		case !Sealed(envelope) || KeyOf(envelope) != k.First() || !k.Current(envelope):
			rt.Fatalf("%q is no envelope of the first key", envelope)
		case len(text) > 3 && strings.Contains(envelope, text):
			rt.Fatalf("%q shows %q", envelope, text)
		case !utf8.ValidString(envelope) || strings.ContainsAny(envelope, "\"\\\r\n "):
			rt.Fatalf("%q does not go into JSON as it is", envelope)
		case !Sealed(text) && k.Seal(at, text) != envelope || k.Seal(at, envelope) != envelope || k.Renew(at, envelope) != envelope:
			rt.Fatal("sealing again changes it")
		}
		for _, other := range []*Keys{k, keysOf(t, "ba"), keysOf(t, "a")} {
			if got, err := other.Open(at, envelope); err != nil || got != text {
				rt.Fatalf("opened as %q, %v", got, err)
			}
		}
	})
}

func TestEnvelopesTellTextsAndPlacesApart(t *testing.T) {
	k, seen := keysOf(t, "a"), map[string]string{}
	for _, at := range []Place{Cluster, OfTopic("t", "Authorization"), OfTopic("t", "X-Key"), OfTopic("u", "X-Key"), Signing("t"), OfTimer(1, "X-Key"), OfTimer(11, "X-Key")} {
		for _, text := range []string{"", "a", "b", "ab"} {
			envelope := k.Seal(at, text)
			nonce := envelope[1+idChars:][:encoding.EncodedLen(nonceBytes)]
			if before, twice := seen[nonce]; twice {
				t.Errorf("%q of %q has the nonce of %s", text, at, before)
			}
			seen[nonce] = string(at) + " " + text
		}
	}
	if OfTopic("t", "AUTHORIZATION") != OfTopic("t", "authorization") || OfTimer(1, "A") != OfTimer(1, "a") {
		t.Error("the case of a header's name counts")
	}
}

func TestEnvelopeOpensOnlyWhereAndAsItWasMade(t *testing.T) {
	k := keysOf(t, "ab")
	at := OfTopic("t", "Authorization")
	envelope := k.Seal(at, "Bearer 123")
	if _, err := k.Open(OfTopic("u", "Authorization"), envelope); !errors.Is(err, ErrDamaged) {
		t.Errorf("elsewhere: %v", err)
	}
	for i := 1 + idChars; i < len(envelope)-1; i++ { // the last character has unused bits
		for _, c := range []byte{envelope[i] ^ 1, '*'} {
			damaged := envelope[:i] + string(c) + envelope[i+1:]
			if got, err := k.Open(at, damaged); err == nil {
				t.Fatalf("character %d: opened as %q", i, got)
			}
		}
	}
	for n := range len(envelope) {
		got, err := k.Open(at, envelope[:n])
		if n == 0 {
			if got != "" || err != nil {
				t.Errorf("nothing is not itself: %q, %v", got, err)
			}
			continue
		}
		if err == nil {
			t.Fatalf("cut at %d: opened as %q", n, got)
		}
	}
	for name, lacking := range map[string]*Keys{"no keys": nil, "other keys": keysOf(t, "c")} {
		_, err := lacking.Open(at, envelope)
		if missing, ok := errors.AsType[*KeyError](err); !ok || missing.ID != k.First() || !strings.Contains(err.Error(), "--secrets-key") {
			t.Errorf("%s: %v", name, err)
		}
		if got := lacking.Renew(at, envelope); got != envelope {
			t.Errorf("%s: renewed to %q", name, got)
		}
		if lacking.Has(k.First()) {
			t.Errorf("%s: has it", name)
		}
	}
}

func TestRotation(t *testing.T) {
	old, both, next := keysOf(t, "a"), keysOf(t, "ba"), keysOf(t, "b")
	at := Signing("t")
	envelope := old.SealSigning("t", "whsec_x")
	hint := Fingerprint("whsec_x")
	if Fingerprint(envelope) != hint || Fingerprint(hint) != hint || Fingerprint(old.Seal(at, "whsec_x")) != "" {
		t.Errorf("fingerprint %q", Fingerprint(envelope))
	}
	if both.Current(envelope) {
		t.Error("the second key's envelope passes for the first one's")
	}
	renewed := both.SealSigning("t", envelope)
	if got, err := next.Open(at, renewed); err != nil || got != "whsec_x" || Fingerprint(renewed) != hint {
		t.Errorf("renewed: %q, %v, %q", got, err, Fingerprint(renewed))
	}
	if renewed != next.SealSigning("t", "whsec_x") {
		t.Error("renewed is not as sealed anew")
	}
	var none *Keys
	if none.First() != "" || none.SealSigning("t", "whsec_x") != "whsec_x" || !none.Current("x") || none.Renew(at, "x") != "x" {
		t.Error("no keys change a text")
	}
}

func TestKeysThatAreNone(t *testing.T) {
	good := bytes.Repeat([]byte{1}, KeyBytes)
	for _, list := range [][][]byte{nil, {good[:16]}, {good, good}, {good, nil}} {
		if _, err := New(list); err == nil || strings.Contains(err.Error(), base64.StdEncoding.EncodeToString(good)) {
			t.Errorf("%d keys: %v", len(list), err)
		}
	}
}

func TestNamesOfSecrets(t *testing.T) {
	for name, want := range map[string]bool{
		"Authorization": true, "PROXY-AUTHORIZATION": true, "Cookie": true, "X-Api-Key": true, "x-token": true, "My-Secret-Thing": true, "Password": true,
		strings.Repeat("x", 200) + "-Token": true,
		"":                                  false, "Content-Language": false, "X-Request-Id": false, "To-ken": false,
	} {
		if Named(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { Named("X-Not-At-All-Hidden") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// The golden envelope: every later release must open it.
func TestEnvelopeStaysReadable(t *testing.T) {
	const golden = "\x01" + `vmRYZ79coZYom4s0apda07gjWX_wvZFB8hQ4uBnrVZdmFxPm3PkzOqdEYp8`
	k, at := keysOf(t, "k"), OfTopic("orders", "Authorization")
	if got, err := k.Open(at, golden); err != nil || got != "Bearer 123" || k.Seal(at, got) != golden {
		t.Errorf("%q, %v; sealed now as %q", got, err, k.Seal(at, "Bearer 123"))
	}
}

func FuzzOpen(f *testing.F) {
	k := keysOf(f, "ab")
	for _, text := range []string{"", "x", strings.Repeat("y", 4096)} {
		f.Add(k.Seal(Cluster, text))
		f.Add(k.SealSigning("t", text))
	}
	f.Add("\x01")
	f.Fuzz(func(t *testing.T, text string) {
		plain, err := k.Open(Cluster, text)
		if err == nil && Sealed(text) {
			body, _, _ := strings.Cut(text, string(hintMark))
			if strings.ContainsAny(text, "\r\n") { // the decoder ignores them
				return
			}
			// Nobody without the keys can make an envelope that opens. A mutation of one made here
			// keeps its meaning.
			if again := k.Seal(Cluster, plain); KeyOf(text) == k.First() && again[:len(again)-1] != body[:len(body)-1] {
				t.Fatalf("%q opens as %q, whose envelope is %q", text, plain, again)
			}
		}
		_, _, _ = KeyOf(text), Fingerprint(text), k.Renew(Cluster, text)
	})
}

var sink string

func BenchmarkSeal(b *testing.B) {
	k, at := keysOf(b, "a"), OfTimer(7, "Authorization")
	text := "Bearer " + strings.Repeat("x", 40)
	b.ReportAllocs()
	for b.Loop() {
		sink = k.Seal(at, text)
	}
}

func BenchmarkOpen(b *testing.B) {
	k, at := keysOf(b, "a"), OfTimer(7, "Authorization")
	envelope := k.Seal(at, "Bearer "+strings.Repeat("x", 40))
	b.ReportAllocs()
	for b.Loop() {
		sink, _ = k.Open(at, envelope)
	}
}

func BenchmarkNamed(b *testing.B) {
	names := []string{"X-Request-Id", "Content-Language", "X-Tenant"}
	b.ReportAllocs()
	for b.Loop() {
		if slices.ContainsFunc(names, Named) {
			b.Fatal()
		}
	}
}

func TestDigest(t *testing.T) {
	one, same, other := NewDigest([]byte("a")), NewDigest([]byte("a")), NewDigest([]byte("b"))
	if first := one.Sum("x"); first != same.Sum("x") || first != one.Sum("x") {
		t.Error("it is not the same everywhere")
	}
	if one.Sum("x") == other.Sum("x") || one.Sum("x") == one.Sum("y") || one.Sum("") == 0 {
		t.Error("different texts or secrets have one number")
	}
}

func BenchmarkDigest(b *testing.B) {
	d := NewDigest([]byte("a secret of 32 bytes, or so many"))
	b.ReportAllocs()
	for b.Loop() {
		if d.Sum("Bearer 0123456789012345678901234567890123456789") == 0 {
			b.Fatal()
		}
	}
}

// TestGiveUp: only a possible key id is accepted, and no key is both present and lost.
func TestGiveUp(t *testing.T) {
	keys := keysOf(t, "a")
	other := keysOf(t, "b").First()
	for _, ids := range [][]string{{""}, {"short"}, {other + "x"}, {"????????"}, {other, keys.First()}} {
		if _, err := keys.GiveUp(ids); err == nil {
			t.Errorf("%q is taken", ids)
		}
	}
	given, err := keys.GiveUp([]string{other})
	if err != nil || !given.Lost(other) || given.Has(other) || given.Lost(keys.First()) || keys.Lost(other) || (*Keys)(nil).Lost(other) {
		t.Errorf("%+v, %v", given, err)
	}
}
