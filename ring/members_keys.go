package ring

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

var errKeysNeedRestart = errors.New("ring: gossip keys can be introduced, or given up, only by a restart of the node")

func checkKeys(keys [][]byte) (faults error) {
	for i, key := range keys {
		if slices.ContainsFunc(keys[:i], func(k []byte) bool { return bytes.Equal(k, key) }) {
			faults = errors.Join(faults, fmt.Errorf("gossip key %d is given twice", 1+i))
		}
		if n := len(key); n != 16 && n != 24 && n != 32 {
			faults = errors.Join(faults, fmt.Errorf("gossip key %d has %d bytes; it needs 16, 24 or 32", 1+i, n))
		}
	}
	return faults
}

func (m *Members) keys() [][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cfg.Keys
}

// SetKeys has the first key encrypt and all of them decrypt, from now on. It may be called at any
// time. Gossip that began without keys stays without, and the other way round: to change that is an
// error.
func (m *Members) SetKeys(keys [][]byte) error {
	if err := checkKeys(keys); err != nil {
		return fmt.Errorf("ring: %w", err)
	}
	keys = slices.Clone(keys)
	m.mu.Lock()
	fits := (len(keys) == 0) == (len(m.cfg.Keys) == 0)
	if fits {
		m.cfg.Keys = keys
	}
	m.mu.Unlock()
	if !fits {
		return errKeysNeedRestart
	}
	select {
	case <-m.ready:
	default:
		return nil // Run takes them
	}
	if m.gossip == nil || len(keys) == 0 {
		return nil
	}
	return m.gossip.setKeys(keys)
}
