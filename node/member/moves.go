package member

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"carillon/ring"
	"carillon/shard"
)

const (
	movesTimeout = 250 * time.Millisecond
	movesEach    = 500 * time.Millisecond // one question in this time, whoever wants to know
)

// shownMoves are the moves of replicas as operators see them. Only the meta group's leader knows
// them; others ask it.
type shownMoves struct {
	mu      sync.Mutex
	askedAt time.Duration // 0: never
	last    ring.Moves
}

// Moves is what moves between nodes and what waits, as of the controller's last turn; all zero where
// nothing does, or the meta group's leader does not answer.
func (m *Member) Moves(ctx context.Context) ring.Moves {
	if m.host.Leads(shard.Meta) {
		return m.Planned()
	}
	s := &m.shown
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := m.tasks.Now(); s.askedAt == 0 || now-s.askedAt >= movesEach {
		s.last = m.askMoves(ctx)
		s.askedAt = m.tasks.Now()
	}
	return s.last
}

func (m *Member) askMoves(ctx context.Context) (moves ring.Moves) {
	leader, known := m.host.Leader(shard.Meta)
	if !known || !m.isUp(leader) {
		return ring.Moves{}
	}
	ctx, cancel := m.tasks.WithTimeout(ctx, movesTimeout)
	defer cancel()
	answer, err := m.peers.Call(ctx, leader, methodMoves, nil)
	if err != nil || json.Unmarshal(answer, &moves) != nil {
		return ring.Moves{}
	}
	return moves
}

// Planned is Moves on the meta group's leader; all zero elsewhere.
func (m *Member) Planned() ring.Moves {
	if moves := m.controller.moves.Load(); moves != nil {
		return *moves
	}
	return ring.Moves{}
}
