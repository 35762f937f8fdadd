package ring

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"carillon/internal/secret"
)

// TestLostKey: a key that is missing keeps everything waiting, and nothing is replaced. Of one that
// is said to be lost the cluster's secret is replaced, once, and no topic's.
func TestLostKey(t *testing.T) {
	old := keysOf(t, "a")
	s := founded(t, 4, 3, 3)
	plain := [SecretBytes]byte(bytes.Repeat([]byte{7}, SecretBytes))
	done(t, s, SecretCommand(plain, old))
	done(t, s, Command{Verb: Put, Name: "t", Policy: SealPolicy(old, "t", secretive())})
	done(t, s, Command{Verb: Ensure, Name: "plain"})
	sealed := s.SealedBy()[old.First()]
	random := func(b []byte) { copy(b, bytes.Repeat([]byte{9}, len(b))) }

	missing := keysOf(t, "b")
	if lacks, ok := errors.AsType[*secret.KeyError](s.Lacks(missing)); !ok || lacks.ID != old.First() {
		t.Errorf("it lacks %v", lacks)
	}
	for _, keys := range []*secret.Keys{nil, missing, old} {
		if c, replaces := s.Replacing(keys, random); replaces {
			t.Errorf("replaced, though nobody said that a key is lost: %+v", c)
		}
	}
	if locked := s.Locked(missing, 10); !slices.Equal(locked, []string{"t"}) || s.Locked(missing, 0) != nil || s.Locked(old, 10) != nil {
		t.Errorf("locked: %q", locked)
	}

	keys, err := missing.GiveUp([]string{old.First()})
	if err != nil {
		t.Fatal(err)
	}
	first, replaces := s.Replacing(keys, random)
	if !replaces {
		t.Fatal("the cluster keeps a secret that nobody can open")
	}
	second, _ := s.Replacing(keys, func(b []byte) { clear(b) }) // of two leaders
	done(t, s, first)
	done(t, s, second)
	if got, err := OpenSecret(s.Secret(), keys); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{9}, SecretBytes)) {
		t.Errorf("the cluster's secret is %x, %v", got, err)
	}
	if _, again := s.Replacing(keys, random); again || s.Lacks(keys) != nil {
		t.Errorf("replaced again: %v; it lacks %v", again, s.Lacks(keys))
	}
	if locked := s.Locked(keys, 10); !slices.Equal(locked, []string{"t"}) || s.SealedBy()[old.First()] != sealed || sealed == 0 {
		t.Errorf("what a topic has is given up: locked %q, sealed by %v", locked, s.SealedBy())
	}
}
