package ring

import (
	"bytes"
	"testing"
)

func TestSecret(t *testing.T) {
	secret := [SecretBytes]byte{1, 2, 3}
	refused(t, NewState(nil, nil), ErrNotFounded, SecretCommand(secret, nil))
	s := founded(t, 4, 3, 3)
	if s.Secret() != nil {
		t.Fatal("there is a secret that nobody made")
	}
	refused(t, s, ErrBadSecret, Command{Verb: SetSecret, Secret: []byte("short")})
	must(t, s, SecretCommand(secret, nil))
	must(t, s, SecretCommand([SecretBytes]byte{9}, nil)) // two leaders may have had one made
	again := NewState(nil, nil)
	if err := again.Load(s.Save()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*State{s, again} {
		if !bytes.Equal(s.Secret(), secret[:]) {
			t.Errorf("secret %x", s.Secret())
		}
	}
	if err := again.Load(bytes.Replace(s.Save(), []byte(`"secret":"AQID`), []byte(`"secret":"`), 1)); err == nil {
		t.Error("a damaged secret was loaded")
	}
}
