package ring

import (
	"errors"
	"testing"

	"carillon/timer"
)

// TestDeliveryChangesAtItsTurn: a topic's delivery changes only by the number under which its
// shards were asked last, and a change that was given up changes nothing any more.
func TestDeliveryChangesAtItsTurn(t *testing.T) {
	s := founded(t, 2, 1, 2)
	push, pull := timer.DefaultPolicy(), timer.DefaultPolicy()
	pull.Pull = true
	topic := done(t, s, Command{Verb: Put, Name: "a", Policy: &push}).Topic
	put := Command{Verb: Put, Name: "a", ID: topic.ID, Policy: &pull}
	atOtherTurn(t, s, put)
	put.Turn = 1
	atOtherTurn(t, s, put)
	if n := done(t, s, Command{Verb: Turn, Name: "a", ID: topic.ID}).Topic.Turn; n != 1 || len(s.Turning()) != 1 {
		t.Fatalf("turn %d, turning %v", n, s.Turning())
	}
	// The rest of the policy may change meanwhile.
	done(t, s, Command{Verb: Put, Name: "a", Policy: &push})
	done(t, s, Command{Verb: Turn, Name: "a", ID: topic.ID})
	atOtherTurn(t, s, put)
	atOtherTurn(t, s, Command{Verb: Turned, Name: "a", ID: topic.ID, Turn: 1})
	again := NewState(nil, nil)
	if err := again.Load(s.Save()); err != nil || again.Hash() != s.Hash() || len(again.Turning()) != 1 {
		t.Fatalf("read again: %v, turning %v", err, again.Turning())
	}
	done(t, s, Command{Verb: Turned, Name: "a", ID: topic.ID, Turn: 2})
	put.Turn = 2
	atOtherTurn(t, s, put)
	done(t, s, Command{Verb: Turn, Name: "a", ID: topic.ID})
	put.Turn = 3
	if now := done(t, s, put).Topic; !now.Policy.Pull || now.Turning || len(s.Turning()) != 0 {
		t.Errorf("%+v", now)
	}
	if err := s.Audit(); err != nil {
		t.Error(err)
	}
}

func atOtherTurn(t *testing.T, s *State, c Command) {
	t.Helper()
	before := string(s.Save())
	if r := s.applied(1000, c.Encode()); !errors.Is(r.Err, ErrTurn) || string(s.Save()) != before {
		t.Fatalf("%+v: %v", c, r.Err)
	}
}
