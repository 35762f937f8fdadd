package node

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"carillon/internal/secret"
)

// Bounds of a key file.
const (
	maxKeyFileBytes = 16 << 10
	maxKeys         = 32
)

const secretsKeySetting = "secrets-key"

const othersMayWrite fs.FileMode = 0o022 // a file of keys

// keyFile is a file of keys as it was read: one key on a line, the first of them in use, the others
// for secrets that were sealed with them before a rotation. Empty lines and lines that begin with #
// do not count. In a file of secrets keys a line "lost ID" declares that no copy of a key is left.
type keyFile struct {
	keys   [][]byte
	lost   []string
	shared bool // others than the file's owner may read it, which is worth a warning
}

// readKeyFile reads keys of the given sizes, as hex or base64. An error names the setting, the file
// and the line, and never shows the contents of the file. A file that others may write is refused:
// they could put a key of their own in it. One that others may only read is taken, as secrets that
// an orchestrator mounts look so.
func readKeyFile(setting, path string, sizes ...int) (keyFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return keyFile{}, fmt.Errorf("%s: %w", setting, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return keyFile{}, fmt.Errorf("%s: %w", setting, err)
	}
	shared, err := checkOwnersFile(setting, path, info)
	if err != nil {
		return keyFile{}, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFileBytes+1))
	if err != nil {
		return keyFile{}, fmt.Errorf("%s: %w", setting, err)
	}
	var lost []string
	if setting == secretsKeySetting {
		data, lost = takeLost(data)
	}
	keys, err := parseKeys(data, sizes)
	if err != nil {
		return keyFile{}, fmt.Errorf("%s: %s: %w; head -c 32 /dev/urandom | base64 makes a key", setting, path, err)
	}
	return keyFile{keys: keys, lost: lost, shared: shared}, nil
}

// takeLost takes the ids of lost keys out of a file. Their lines stay, empty, as errors count them.
func takeLost(data []byte) (rest []byte, ids []string) {
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		if id, found := strings.CutPrefix(strings.TrimSpace(line), "lost "); found {
			ids, lines[i] = append(ids, strings.TrimSpace(id)), ""
		}
	}
	return []byte(strings.Join(lines, "\n")), ids
}

// checkOwnersFile refuses a file that others than its owner may write. shared: they may read it.
func checkOwnersFile(setting, path string, info fs.FileInfo) (shared bool, err error) {
	mode := info.Mode().Perm()
	if mode&othersMayWrite != 0 {
		return false, fmt.Errorf("%s: others than its owner may write %s (mode %04o); chmod 600 it", setting, path, mode)
	}
	return secret.Shared(uint32(mode)), nil
}

// checkPeerKey looks at the rights of others to the private key of the node's certificate; it is
// read elsewhere.
func (c Credentials) checkPeerKey() (shared bool, err error) {
	if c.PeerKey == "" {
		return false, nil
	}
	info, err := os.Stat(c.PeerKey)
	if err != nil {
		return false, fmt.Errorf("peer-key: %w", err)
	}
	return checkOwnersFile("peer-key", c.PeerKey, info)
}

// warnShared warns that others may read a file of keys.
func (p *process) warnShared(path string, shared bool) {
	if shared {
		p.log.Warn("a file of keys can be read by other users of this machine; chmod 600 it", "file", path)
	}
}

var errNoKey = errors.New("there is no key in it")

func parseKeys(data []byte, sizes []int) (keys [][]byte, err error) {
	if len(data) > maxKeyFileBytes {
		return nil, fmt.Errorf("it is longer than %d bytes", maxKeyFileBytes)
	}
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, ok := parseKey(line, sizes)
		switch {
		case !ok:
			return nil, fmt.Errorf("line %d is not a key of %s bytes, in base64 or hex", 1+i, sizesText(sizes))
		case slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) }):
			return nil, fmt.Errorf("line %d repeats a key", 1+i)
		case len(keys) == maxKeys:
			return nil, fmt.Errorf("line %d is one key more than %d", 1+i, maxKeys)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, errNoKey
	}
	return keys, nil
}

// parseKey: 32 hex digits are 16 bytes, although they could be read as base64 of 24.
func parseKey(line string, sizes []int) (key []byte, ok bool) {
	if strings.ContainsAny(line, "\r\n") {
		return nil, false // the decoder would pass over them
	}
	key, err := hex.DecodeString(line)
	if err != nil {
		key, err = base64.StdEncoding.DecodeString(line)
	}
	return key, err == nil && slices.Contains(sizes, len(key))
}

func sizesText(sizes []int) string {
	texts := make([]string, len(sizes))
	for i, n := range sizes {
		texts[i] = fmt.Sprint(n)
	}
	if len(texts) > 1 {
		last := len(texts) - 1
		return strings.Join(texts[:last], ", ") + " or " + texts[last]
	}
	return texts[0]
}

// gossipKeySizes are those of AES-128, -192 and -256.
var gossipKeySizes = []int{16, 24, 32}

// readGossipKeys reads the keys by which nodes know each other; none without a file.
func (c Credentials) readGossipKeys() (keyFile, error) {
	if c.GossipKeyFile == "" {
		return keyFile{}, nil
	}
	return readKeyFile("gossip-key", c.GossipKeyFile, gossipKeySizes...)
}
