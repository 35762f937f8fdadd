package node

import (
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadGossipKey(t *testing.T) {
	raw := []byte("0123456789abcdef0123456789abcdef")
	b64 := base64.StdEncoding.EncodeToString
	tests := []struct {
		name, text string
		bytes      int // 0: refused
	}{
		{"base64 of 16", b64(raw[:16]), 16},
		{"base64 of 24", b64(raw[:24]) + "\n", 24},
		{"base64 of 32", b64(raw) + "\r\n", 32},
		{"hex of 16", hex.EncodeToString(raw[:16]), 16},
		{"hex of 24", hex.EncodeToString(raw[:24]), 24},
		{"hex of 32", strings.ToUpper(hex.EncodeToString(raw)) + "\n", 32},
		{"empty", "", 0},
		{"15 bytes", b64(raw[:15]), 0},
		{"33 bytes", b64(append(raw[:32:32], 'x')), 0},
		{"two lines", b64(raw[:12]) + "\n" + b64(raw[12:24]) + "\n", 0},
		{"plain text", "a very secret pass phrase", 0},
		{"too long", strings.Repeat(" ", maxKeyFileBytes) + b64(raw), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			key, shared, err := readGossipKey(path)
			if tt.bytes == 0 {
				if err == nil || !strings.Contains(err.Error(), path) {
					t.Fatalf("got %d bytes, %v", len(key), err)
				}
				if text := strings.TrimSpace(tt.text); text != "" && strings.Contains(err.Error(), text) {
					t.Errorf("the error shows what the file holds: %v", err)
				}
				return
			}
			if err != nil || string(key) != string(raw[:tt.bytes]) || shared {
				t.Errorf("got %q, shared %v, %v", key, shared, err)
			}
		})
	}
}

func TestGossipKeyThatOthersMayRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, []byte(strings.Repeat("ab", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, shared, err := readGossipKey(path); err != nil || !shared {
		t.Errorf("shared %v, %v", shared, err)
	}
	if _, _, err := readGossipKey(t.TempDir()); err == nil {
		t.Error("took a directory for a key")
	}
}
