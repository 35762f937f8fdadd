package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"carillon/timer"
)

// manyTopics is a founded State with so many topics.
func manyTopics(tb testing.TB, n int) *State {
	tb.Helper()
	s := NewState(nil, nil)
	c := FoundCommand("c", 16, 3, nodes(3))
	if r := s.applied(1, c.Encode()); r.Err != nil {
		tb.Fatal(r.Err)
	}
	topics := make([]*timer.Topic, n)
	for i := range topics {
		p := timer.DefaultPolicy()
		p.Callback.URL = fmt.Sprintf("https://receiver-%d.example/hook", i)
		topics[i] = &timer.Topic{ID: timer.TopicID(i + 1), Name: fmt.Sprintf("topic-%06d", i), Policy: p, CreatedMs: 1, UpdatedMs: 1}
	}
	s.Topics.replace(newTopicSet(timer.TopicID(n), topics))
	return s
}

// TestTopicList: the list is as a sorted slice would be after any puts and removals, and the holder
// of an older one sees nothing of them.
func TestTopicList(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	random := rand.New(rand.NewPCG(3, 9))
	var list topicList
	var want []*timer.Topic // nil: no such topic
	ids := func(l topicList) string {
		text := ""
		for topic := range l.all() {
			text += fmt.Sprintf("%d/%d ", topic.ID, topic.UpdatedMs)
		}
		return text
	}
	for n := range 6000 {
		held, before := list, ""
		if n%100 == 0 {
			before = ids(list)
		}
		switch id := random.IntN(len(want)/2 + 1); {
		case random.IntN(3) > 0 || len(want) == 0:
			want = append(want, &timer.Topic{ID: timer.TopicID(len(want))})
			list = list.with(want[len(want)-1])
		case random.IntN(2) == 0:
			want[id] = nil
			list = list.without(timer.TopicID(id))
		default: // also one that is not there any more
			want[id] = &timer.Topic{ID: timer.TopicID(id), UpdatedMs: int64(n)}
			list = list.with(want[id])
		}
		if before != "" && ids(held) != before {
			t.Fatal("a list that is held has changed")
		}
	}
	text := ""
	for _, topic := range want {
		if topic != nil {
			text += fmt.Sprintf("%d/%d ", topic.ID, topic.UpdatedMs)
		}
	}
	if ids(list) != text {
		t.Error("the list is not what was put there")
	}
	for _, page := range list {
		if len(page) == 0 || len(page) > topicPage {
			t.Fatalf("a page of %d", len(page))
		}
	}
}

// TestSnapshotFindsAFlippedBit: a snapshot finds any bit of a topic, a node or a row that has changed
// by itself. It does not take the changes of commands for that.
func TestSnapshotFindsAFlippedBit(t *testing.T) {
	saved := func(s *State) bool {
		saving := s.BeginSave()
		for done := false; !done; {
			_, done = saving.Next(nil, 1000)
			pause := Command{Verb: Pause, Name: "topic-000003"}
			s.applied(5, pause.Encode())
		}
		return saving.Sound()
	}
	s := manyTopics(t, 600)
	if !saved(s) {
		t.Fatal("a state as it should be is called damaged")
	}
	flips := map[string]func() (back func()){
		"a topic's policy": func() func() {
			v := s.byID[300]
			v.Policy.MaxAttempts ^= 4
			return func() { v.Policy.MaxAttempts ^= 4 }
		},
		"a topic's time": func() func() { v := s.byID[600]; v.UpdatedMs ^= 1 << 40; return func() { v.UpdatedMs ^= 1 << 40 } },
		"the sum":        func() func() { s.sum ^= 2; return func() { s.sum ^= 2 } },
		"a row":          func() func() { s.cluster.rows[3].Epoch ^= 1; return func() { s.cluster.rows[3].Epoch ^= 1 } },
		"a node": func() func() {
			n := s.cluster.nodes[2]
			n.Starts ^= 1 << 10
			s.cluster.nodes[2] = n
			return func() { n.Starts ^= 1 << 10; s.cluster.nodes[2] = n }
		},
	}
	for name, flip := range flips {
		back := flip()
		if saved(s) {
			t.Errorf("%s: it is written as if nothing were", name)
		}
		back()
		if !saved(s) {
			t.Fatalf("%s: flipped back, it is called damaged", name)
		}
	}
}

func BenchmarkStateSlice(b *testing.B) {
	s := manyTopics(b, timer.MaxTopics)
	saving, buf := s.BeginSave(), []byte(nil)
	for b.Loop() {
		var done bool
		if buf, done = saving.Next(buf[:0], 256<<10); done {
			saving = s.BeginSave()
		}
	}
}
