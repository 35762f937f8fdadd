package ring

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

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
		for w := (&topicWalk{list: l}); ; {
			topic := w.next()
			if topic == nil {
				return text
			}
			text += fmt.Sprintf("%d/%d ", topic.ID, topic.UpdatedMs)
		}
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

// TestSnapshotInSlices: a snapshot of 100,000 topics is cut and written in slices, each of which
// takes a small part of the time that the whole takes, shows the state as it was when it was cut,
// and is read without the state that it replaces.
func TestSnapshotInSlices(t *testing.T) {
	topics := timer.MaxTopics
	if testing.Short() {
		topics /= 5
	}
	s := manyTopics(t, topics)
	want := s.Hash()
	var took []time.Duration
	timed := func(do func()) time.Duration {
		begin := time.Now()
		do()
		return time.Since(begin)
	}
	var saving timer.Saving
	begun := timed(func() { saving = s.BeginSave() })
	var pieces int
	var sum time.Duration
	var all bytes.Buffer
	for done := false; !done; pieces++ {
		var b []byte
		took = append(took, timed(func() { b, done = saving.Next(nil, 256<<10) }))
		sum += took[pieces]
		all.Write(b)
		if pieces%10 == 0 {
			name := fmt.Sprintf("topic-%06d", pieces*97)
			pause := Command{Verb: Pause, Name: name}
			s.applied(2, pause.Encode())
		}
	}
	slices.Sort(took)
	usual := took[pieces*3/4] // the rest has to do with other work of the machine
	t.Logf("%d bytes in %d slices of %s, the longest %s, all of them %s", all.Len(), pieces, usual, took[pieces-1], sum)
	if pieces < topics/1000 || usual > sum/(time.Duration(topics)/1000) || begun > sum/10 {
		t.Errorf("begun in %s, then %d slices of %s: the whole takes %s", begun, pieces, usual, sum)
	}
	if !saving.Sound() || saving.Hash() != want {
		t.Error("what was written is not the state as it was")
	}
	other := NewState(nil, nil)
	state, hash, err := other.Read(io.Reader(&all))
	if err != nil || hash != want {
		t.Fatalf("hash %016x, want %016x: %v", hash, want, err)
	}
	if took := timed(func() { other.Replace(state) }); took > sum/10 {
		t.Errorf("to replace the state takes %s, to write it %s", took, sum)
	}
	if other.Hash() != want || other.Audit() != nil {
		t.Errorf("the state that was read: hash %016x, want %016x, %v", other.Hash(), want, other.Audit())
	}
}

// TestHashTakesTheSameTime: the hash of 100,000 topics takes no longer than that of ten.
func TestHashTakesTheSameTime(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	few, many := manyTopics(t, 10), manyTopics(t, timer.MaxTopics)
	took := func(s *State) time.Duration {
		begin := time.Now()
		for range 1000 {
			s.Hash()
		}
		return time.Since(begin)
	}
	a, b := took(few), took(many)
	t.Logf("1000 hashes: %s of 10 topics, %s of %d", a, b, timer.MaxTopics)
	if b > 5*a+20*time.Millisecond {
		t.Errorf("1000 hashes take %s of 10 topics, %s of %d", a, b, timer.MaxTopics)
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
