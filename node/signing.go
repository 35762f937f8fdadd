package node

import (
	"fmt"
	"sync"

	"carillon/secret"
	"carillon/shard"
	"carillon/transport/callback"
)

// maxSigningTopics bounds signingKeys. A topic whose keys are not kept has them decoded for each call.
const maxSigningTopics = 10_000

// signingKeys keeps the decoded secrets of topics, so that a call need not decode them. It is safe for concurrent use.
type signingKeys struct {
	mu sync.RWMutex
	of map[shard.TopicID]topicKeys
}

// topicKeys are the keys of a topic as it stood, each change of a topic makes another value of it, and what opened them.
type topicKeys struct {
	topic  *shard.Topic
	opener *secret.Keys
	keys   [][]byte
}

// keys are the topic's, which must not be changed. Those that could not be opened are not kept.
func (s *signingKeys) keys(t *shard.Topic, opener *secret.Keys) ([][]byte, error) {
	if len(t.Policy.Secrets) == 0 {
		return nil, nil
	}
	s.mu.RLock()
	known := s.of[t.ID]
	s.mu.RUnlock()
	if known.topic == t && known.opener == opener {
		return known.keys, nil
	}
	var keys [][]byte
	for _, kept := range t.Policy.Secrets {
		text, err := opener.Open(secret.Signing(t.Name), kept)
		if err != nil {
			return nil, fmt.Errorf("a signing secret: %w", err)
		}
		if key, err := callback.ParseSecret(text); err == nil { // checked when the policy was set
			keys = append(keys, key)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.of) >= maxSigningTopics || s.of == nil {
		s.of = map[shard.TopicID]topicKeys{}
	}
	s.of[t.ID] = topicKeys{t, opener, keys}
	return keys, nil
}
