package node

import (
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeKeys(t testing.TB, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // the mask of the process does not count
		t.Fatal(err)
	}
	return path
}

func TestReadKeyFile(t *testing.T) {
	raw := []byte("0123456789abcdef0123456789abcdef")
	b64 := base64.StdEncoding.EncodeToString
	tests := []struct {
		name, text string
		bytes      []int // of each key; none: refused
	}{
		{"base64 of 16", b64(raw[:16]), []int{16}},
		{"base64 of 24", b64(raw[:24]) + "\n", []int{24}},
		{"base64 of 32", b64(raw) + "\r\n", []int{32}},
		{"hex of 16", hex.EncodeToString(raw[:16]), []int{16}},
		{"hex of 24", hex.EncodeToString(raw[:24]), []int{24}},
		{"hex of 32", strings.ToUpper(hex.EncodeToString(raw)) + "\n", []int{32}},
		{"two, and comments", "# in use\n" + b64(raw) + "\n\n# before\n  " + b64(raw[:16]) + "\n", []int{32, 16}},
		{"empty", "", nil},
		{"a comment alone", "# a key comes here\n", nil},
		{"15 bytes", b64(raw[:15]), nil},
		{"33 bytes", b64(append(raw[:32:32], 'x')), nil},
		{"half a key a line", b64(raw[:12]) + "\n" + b64(raw[12:24]) + "\n", nil},
		{"one twice", b64(raw) + "\n" + hex.EncodeToString(raw), nil},
		{"plain text", "a very secret pass phrase", nil},
		{"too long", strings.Repeat(" ", maxKeyFileBytes) + b64(raw), nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := writeKeys(t, tt.text, 0o600)
			got, err := readKeyFile("gossip-key", path, gossipKeySizes...)
			if tt.bytes == nil {
				if err == nil || !strings.Contains(err.Error(), path) || !strings.HasPrefix(err.Error(), "gossip-key: ") {
					t.Fatalf("got %d keys, %v", len(got.keys), err)
				}
				if text := strings.TrimSpace(tt.text); text != "" && strings.Contains(err.Error(), text) {
					t.Errorf("the error shows what the file holds: %v", err)
				}
				return
			}
			if err != nil || len(got.keys) != len(tt.bytes) || got.shared {
				t.Fatalf("got %v, %v", got, err)
			}
			for i, n := range tt.bytes {
				if string(got.keys[i]) != string(raw[:n]) {
					t.Errorf("key %d is %q", i, got.keys[i])
				}
			}
		})
	}
}

// TestKeyFileOfOthers: a user that may write the file could put a key of its own in it; one that
// may read it is worth a warning.
func TestKeyFileOfOthers(t *testing.T) {
	key := strings.Repeat("ab", 32)
	for mode, want := range map[os.FileMode]string{0o600: "", 0o400: "", 0o440: "", 0o640: "shared", 0o444: "shared", 0o620: "chmod 600", 0o602: "chmod 600", 0o666: "chmod 600"} {
		path := writeKeys(t, key, mode)
		got, err := readKeyFile("gossip-key", path, gossipKeySizes...)
		switch {
		case want == "chmod 600":
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%o: %v", mode, err)
			}
		case err != nil || got.shared != (want == "shared"):
			t.Errorf("%o: shared %v, %v", mode, got.shared, err)
		}
	}
	for mode, want := range map[os.FileMode]string{0o600: "", 0o440: "", 0o640: "shared", 0o660: "chmod 600"} {
		shared, err := Credentials{PeerKey: writeKeys(t, "a PEM file", mode)}.checkPeerKey()
		if (err != nil) != (want == "chmod 600") || shared != (want == "shared") {
			t.Errorf("the key of a certificate, %o: shared %v, %v", mode, shared, err)
		}
	}
	if _, err := readKeyFile("gossip-key", t.TempDir(), gossipKeySizes...); err == nil {
		t.Error("took a directory for a key")
	}
}
