package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
	"sync"
)

// KeyBytes is the length of a key.
const KeyBytes = 32

const (
	mark       = '\x01' // begins every envelope
	idBytes    = 6
	idChars    = 8 // of idBytes in base64
	nonceBytes = 12
	tagBytes   = 16
	hintMark   = '.' // before a fingerprint; not part of base64url
)

// Labels for deriving from a key. These texts are part of the format.
const (
	forSealing = "carillon secrets seal 1"
	forNonces  = "carillon secrets nonce 1"
	forID      = "carillon secrets id 1"
)

var encoding = base64.RawURLEncoding.Strict()

// Keys are the secret keys of a node; the first one seals. They are immutable; a rotation makes new
// ones.
type Keys struct {
	list []*key
	lost []string // ids of keys without any copy left; see GiveUp
}

type key struct {
	id   string
	aead cipher.AEAD
	macs sync.Pool // of hash.Hash, for nonces: making one is expensive
}

// New makes Keys of at least one key of KeyBytes each.
func New(keys [][]byte) (*Keys, error) {
	if len(keys) == 0 {
		return nil, errors.New("secret: no key")
	}
	k := &Keys{}
	for i, b := range keys {
		one, err := newKey(b)
		if err != nil {
			return nil, fmt.Errorf("secret: key %d: %w", 1+i, err)
		}
		if k.find(one.id) != nil {
			return nil, fmt.Errorf("secret: key %d is there twice", 1+i)
		}
		k.list = append(k.list, one)
	}
	return k, nil
}

func newKey(b []byte) (*key, error) {
	if len(b) != KeyBytes {
		return nil, fmt.Errorf("it has %d bytes, it needs %d", len(b), KeyBytes)
	}
	derive := func(what string, n int) []byte {
		out, err := hkdf.Key(sha256.New, b, nil, what, n)
		if err != nil {
			panic(fmt.Sprintf("secret: derive a key: %v", err)) // only an invalid length fails
		}
		return out
	}
	block, err := aes.NewCipher(derive(forSealing, KeyBytes))
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	nonces := derive(forNonces, sha256.Size)
	return &key{
		id: encoding.EncodeToString(derive(forID, idBytes)), aead: aead,
		macs: sync.Pool{New: func() any { return hmac.New(sha256.New, nonces) }},
	}, nil
}

// GiveUp returns the same keys, with other key ids marked as lost for good: nothing waits for those
// keys any more, and values that they have sealed may be replaced.
func (k *Keys) GiveUp(ids []string) (*Keys, error) {
	for _, id := range ids {
		if b, err := encoding.DecodeString(id); err != nil || len(b) != idBytes {
			return nil, fmt.Errorf("secret: %q is no key's id; /readyz and carillon_sealed_secrets show the id", id)
		}
		if k.Has(id) {
			return nil, fmt.Errorf("secret: key %s was declared lost, and is in the key file: take one of the two back", id)
		}
	}
	return &Keys{list: k.list, lost: ids}, nil
}

// Lost reports whether the key of an id was given up.
func (k *Keys) Lost(id string) bool { return k != nil && slices.Contains(k.lost, id) }

// First is the id of the key that seals; "" for nil.
func (k *Keys) First() string {
	if k == nil {
		return ""
	}
	return k.list[0].id
}

// Has reports whether there is a key of that id.
func (k *Keys) Has(id string) bool { return k.find(id) != nil }

func (k *Keys) find(id string) *key {
	if k == nil {
		return nil
	}
	for _, one := range k.list {
		if one.id == id {
			return one
		}
	}
	return nil
}

// KeyError means that an envelope needs a key that is missing.
type KeyError struct{ ID string }

func (e *KeyError) Error() string {
	return fmt.Sprintf("this node lacks the secrets key %s: give it the --secrets-key file that the other nodes have, with that key in it; if no copy is left of it, "+
		"see \"A lost secrets key\" in docs/keys.md", e.ID)
}

// ErrNoKeys refuses a secret on a node without keys, in a cluster that seals secrets.
var ErrNoKeys = errors.New("this cluster seals secrets, and this node lacks its key: give it the --secrets-key file that the other nodes have")

// ErrDamaged means that an envelope is damaged, or was moved from its place.
var ErrDamaged = errors.New("a sealed secret cannot be opened: it is damaged, or was moved from elsewhere")

// Sealed reports whether a text is an envelope.
func Sealed(text string) bool { return text != "" && text[0] == mark }

// KeyOf is the id of the key that made an envelope; "" if text is none.
func KeyOf(text string) string {
	if !Sealed(text) || len(text) < 1+idChars {
		return ""
	}
	return text[1 : 1+idChars]
}

// KeyID is the id of a key as bytes.
type KeyID [idChars]byte

// KeyIn is KeyOf for an envelope's bytes; false if text is none.
func KeyIn(text []byte) (id KeyID, ok bool) {
	if len(text) < 1+idChars || text[0] != mark {
		return id, false
	}
	return KeyID(text[1:]), true
}

// Seal makes the envelope of a text for a place. Envelopes stay as they are, and so do all texts if
// k is nil.
func (k *Keys) Seal(at Place, text string) string {
	if k == nil || Sealed(text) {
		return text
	}
	return k.SealBytes(at, text)
}

// SealBytes is Seal for bytes that are no envelope, although they may begin like one. There must be
// a key.
func (k *Keys) SealBytes(at Place, text string) string {
	one := k.list[0]
	var room [512]byte
	b := one.nonce(room[:0], at, text)
	b = one.aead.Seal(b, b, []byte(text), []byte(at))
	out := make([]byte, 0, 1+idChars+encoding.EncodedLen(len(b)))
	out = append(append(out, mark), one.id...)
	return string(encoding.AppendEncode(out, b))
}

// nonce overwrites b with a MAC of everything in the envelope, so that only equal envelopes have
// equal nonces.
func (k *key) nonce(b []byte, at Place, text string) []byte {
	mac := k.macs.Get().(hash.Hash)
	defer k.macs.Put(mac)
	mac.Reset()
	b = binary.LittleEndian.AppendUint64(b, uint64(len(at)))
	b = append(append(b, at...), text...)
	_, _ = mac.Write(b)
	return mac.Sum(b[:0])[:nonceBytes]
}

// Open returns the text of an envelope that was made for a place; any other text is returned
// unchanged. The error is a *KeyError or ErrDamaged.
func (k *Keys) Open(at Place, text string) (string, error) {
	if !Sealed(text) {
		return text, nil
	}
	if len(text) < 1+idChars {
		return "", ErrDamaged
	}
	one := k.find(KeyOf(text))
	if one == nil {
		return "", &KeyError{KeyOf(text)}
	}
	body, _, _ := strings.Cut(text[1+idChars:], string(hintMark))
	b, err := encoding.DecodeString(body)
	if err != nil || len(b) < nonceBytes+tagBytes {
		return "", ErrDamaged
	}
	plain, err := one.aead.Open(b[nonceBytes:nonceBytes], b[:nonceBytes], b[nonceBytes:], []byte(at))
	if err != nil {
		return "", ErrDamaged
	}
	return string(plain), nil
}

// Current reports whether Seal would leave a text as it is: it is sealed by the first key, or k is
// nil.
func (k *Keys) Current(text string) bool { return k == nil || KeyOf(text) == k.First() }

// Renew is Seal that also seals again the envelopes of the other keys. Envelopes that cannot be
// opened stay as they are.
func (k *Keys) Renew(at Place, text string) string {
	if k.Current(text) {
		return text
	}
	plain, err := k.Open(at, text)
	if err != nil {
		return text
	}
	return withHint(k.SealBytes(at, plain), hintOf(text))
}

// Shared reports whether the mode of a file of keys lets others than its owner read it, which is
// worth a warning. An orchestrator mounts secrets as 0440, for a group that the process alone has:
// nobody may write these, and there is no owner who could change the mode.
func Shared(mode uint32) bool {
	return mode&0o044 != 0 && mode&0o777 != 0o440
}
