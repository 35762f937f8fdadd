package node

import (
	"bytes"
	"slices"
	"testing"
)

func FuzzKeyFile(f *testing.F) {
	f.Add([]byte("# in use\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n\n000102030405060708090a0b0c0d0e0f\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, err := parseKeys(b, gossipKeySizes)
		if (err == nil) != (len(keys) > 0) || len(keys) > maxKeys {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for i, key := range keys {
			if !slices.Contains(gossipKeySizes, len(key)) {
				t.Fatalf("a key of %d bytes", len(key))
			}
			if slices.ContainsFunc(keys[:i], func(k []byte) bool { return bytes.Equal(k, key) }) {
				t.Fatal("a key is there twice")
			}
		}
	})
}
