package node

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxKeyFileBytes is far above any key file.
const maxKeyFileBytes = 4096

// readGossipKey reads a key of 16, 24 or 32 bytes (AES-128, -192, -256): one line, hex or base64. An error never shows
// what the file holds. shared: others than the file's owner may read it, which is worth a warning.
func readGossipKey(path string) (key []byte, shared bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false, fmt.Errorf("gossip-key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, fmt.Errorf("gossip-key: %w", err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFileBytes+1))
	if err != nil {
		return nil, false, fmt.Errorf("gossip-key: %w", err)
	}
	key, ok := parseGossipKey(data)
	if !ok {
		return nil, false, fmt.Errorf("gossip-key: %s must hold one line, 16, 24 or 32 bytes as base64 or hex; head -c 32 /dev/urandom | base64 makes one", path)
	}
	return key, info.Mode().Perm()&0o077 != 0, nil
}

// parseGossipKey: 32 hex digits are 16 bytes, although they could be read as base64 of 24.
func parseGossipKey(data []byte) (key []byte, ok bool) {
	if len(data) > maxKeyFileBytes {
		return nil, false
	}
	line := strings.TrimSpace(string(data))
	if strings.ContainsAny(line, "\r\n") {
		return nil, false // the decoder would pass over them
	}
	key, err := hex.DecodeString(line)
	if err != nil {
		key, err = base64.StdEncoding.DecodeString(line)
	}
	if err != nil {
		return nil, false
	}
	switch len(key) {
	case 16, 24, 32:
		return key, true
	}
	return nil, false
}
