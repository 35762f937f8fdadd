package member

import (
	"context"
	"encoding/json"
	"fmt"

	"carillon/ring"
	"carillon/transport/peer"
)

// Methods between nodes about membership. The values are part of the protocol; those between are
// package route's and the node's.
const (
	methodPropose uint8 = 16 // a command for the meta group, to its leader
	methodJoin    uint8 = 17
	methodMembers uint8 = 19
	methodIndex   uint8 = 22 // how far the meta group's state is, of its leader
	methodKnown   uint8 = 23 // the knowledge of the node that asks
	methodGone    uint8 = 24 // whether a process seems to be gone
	methodReplace uint8 = 25 // whether a node whose directory is damaged may be replaced
	methodMoves   uint8 = 26 // what moves and what waits, of the meta group's leader; JSON
)

// Frame takes a control frame that is about nodes; false: it is another, for the shards.
func (s *Self) Frame(from uint64, frame []byte) bool {
	if len(frame) == 0 {
		return false
	}
	switch rest := frame[1:]; frame[0] {
	case heartbeatFrame:
		s.receiveHeartbeat(from, frame)
	case logEndFrame:
		if starts, synced, ok := decodeLogEnd(rest); ok {
			s.logEnds.record(from, starts, synced)
		}
	case wrongFrame:
		if list, ok := decodeWrong(rest); ok {
			s.liveness.recordWrong(s.clock.Mono(), from, list)
		}
	case sizesFrame:
		if bytes, ok := decodeSizes(rest); ok {
			s.sizes.record(s.clock.Mono(), from, bytes)
		}
	default:
		return false
	}
	return true
}

func (s *Self) receiveHeartbeat(from uint64, frame []byte) {
	m := s.member.Load()
	if m == nil {
		return
	}
	h, err := decodeHeartbeat(frame)
	if err != nil {
		return
	}
	now := s.clock.Mono()
	news := s.liveness.receive(now, from, h)
	m.Limits.Receive(now, from, &h.Limits)
	for _, id := range news {
		if m.onLeads != nil {
			m.onLeads(id, from)
		}
	}
}

// Call answers the requests of other nodes about membership; handled is false for methods that are
// not of this package. Methods that are not for strangers are refused to them.
func (s *Self) Call(ctx context.Context, from peer.Hello, method uint8, body []byte) (answer []byte, handled bool, err error) {
	switch method {
	case methodJoin:
		answer, err = s.answerJoin(ctx, from, body)
		return answer, true, err
	case methodKnown:
		answer, err = s.answerKnown(ctx, from, body)
		return answer, true, err
	case methodMembers:
		answer, err = s.answerMembers(from)
		return answer, true, err
	case methodReplace:
		answer, err = s.answerReplace(ctx, from, body)
		return answer, true, err
	}
	m := s.member.Load()
	if m == nil {
		return nil, true, errNotYet
	}
	if n, ok := m.State.Node(from.Node); !ok || n.State == ring.NodeRemoved || from.Lane == peer.LaneOnce {
		return nil, true, fmt.Errorf("node %010x does not call as a member of this cluster", from.Node)
	}
	switch method {
	case methodPropose:
		answer = m.answerProposal(ctx, body)
	case methodIndex:
		answer, err = m.answerIndex(ctx)
	case methodGone:
		answer, err = m.answerGone(ctx, body)
	case methodMoves:
		answer, err = json.Marshal(m.Planned())
	default:
		return nil, false, nil
	}
	return answer, true, err
}
