package ring

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"carillon/test/testkit"
	"carillon/timer"
)

func do(t *testing.T, m *State, c Command) Reply {
	t.Helper()
	return m.applied(1000, c.Encode())
}

func TestTopicLife(t *testing.T) {
	var changed []timer.TopicID
	m := NewState(func(ids ...timer.TopicID) { changed = append(changed, ids...) }, nil)
	first := do(t, m, Command{Verb: Ensure, Name: "a"})
	if !first.Created || !first.Topic.AutoCreated || first.Topic.ID != 1 {
		t.Fatalf("ensure: %+v", first)
	}
	if again := do(t, m, Command{Verb: Ensure, Name: "a"}); again.Created || again.Topic != first.Topic {
		t.Fatalf("ensure again: %+v", again)
	}
	p := timer.DefaultPolicy()
	p.MaxAttempts = 3
	if put := do(t, m, Command{Verb: Put, Name: "a", Policy: &p}); put.Created || put.Topic.Policy.MaxAttempts != 3 || put.Topic.AutoCreated || put.Topic.ID != 1 {
		t.Fatalf("put: %+v", put)
	}
	if r := do(t, m, Command{Verb: Pause, Name: "a"}); !r.Topic.Paused {
		t.Fatal("not paused")
	}
	if v, _ := m.Topic(1); !v.Paused || v.Policy.MaxAttempts != 3 {
		t.Fatalf("by id: %+v", v)
	}
	if r := do(t, m, Command{Verb: Delete, Name: "a", ID: 1}); !errors.Is(r.Err, timer.ErrNotEmpty) {
		t.Fatalf("an open topic was deleted: %+v", r)
	}
	do(t, m, Command{Verb: Close, Name: "a", ID: 1})
	do(t, m, Command{Verb: Delete, Name: "a", ID: 1})
	if _, ok := m.Named("a"); ok {
		t.Fatal("deleted topic is still there")
	}
	if second := do(t, m, Command{Verb: Ensure, Name: "a"}); second.Topic.ID != 2 {
		t.Fatalf("an id was used again: %+v", second.Topic)
	}
	if r := do(t, m, Command{Verb: Close, Name: "a", ID: 1}); !errors.Is(r.Err, timer.ErrNoTopic) {
		t.Fatalf("a command for a former life took effect: %+v", r)
	}
	// Made, found, put, paused, closed, deleted, made; what was refused has changed nothing.
	if want := []timer.TopicID{1, 1, 1, 1, 1, 1, 2}; !slices.Equal(changed, want) {
		t.Fatalf("topics %v are said to have changed, want %v", changed, want)
	}
}

func TestMalformedCommandsChangeNothing(t *testing.T) {
	m := NewState(nil, nil)
	for _, data := range []string{"", "{", `{"verb":"pause","name":"a"}`} {
		if r, err := m.Apply(0, []byte(data)); err == nil && r.(Reply).Err == nil {
			t.Errorf("%q was taken", data)
		}
	}
	if n := len(m.List("", 10)); n != 0 {
		t.Fatalf("%d topics", n)
	}
}

func TestSaveLoad(t *testing.T) {
	m := NewState(nil, nil)
	for _, name := range []string{"b", "a", "c"} {
		do(t, m, Command{Verb: Ensure, Name: name})
	}
	do(t, m, Command{Verb: Pause, Name: "b"})
	do(t, m, Command{Verb: Close, Name: "c"})
	do(t, m, Command{Verb: Delete, Name: "c"})
	other := NewState(nil, nil)
	testkit.Must(t, other.Load(m.Save()))
	if string(other.Save()) != string(m.Save()) {
		t.Fatalf("state differs:\n%s\n%s", m.Save(), other.Save())
	}
	if r := do(t, other, Command{Verb: Ensure, Name: "d"}); r.Topic.ID != 4 {
		t.Fatalf("the id of a deleted topic was used again: %d", r.Topic.ID)
	}
	if err := other.Load([]byte(`{"version":9}`)); err == nil {
		t.Fatal("a later version was read")
	}
}

func TestListInOrder(t *testing.T) {
	m := NewState(nil, nil)
	for _, name := range []string{"b", "d", "a", "c"} {
		do(t, m, Command{Verb: Ensure, Name: name})
	}
	var got string
	for _, v := range m.List("a", 2) {
		got += v.Name
	}
	if got != "bc" {
		t.Fatalf("list after a, limit 2: %q", got)
	}
}

// The names are in order through all changes of topics, and counted by how they begin.
func TestTopicNamesAreInOrder(t *testing.T) {
	topics := NewState(nil, nil)
	do := func(verb Verb, name string) {
		t.Helper()
		c := Command{Verb: verb, Name: name}
		if r := topics.applied(1, c.Encode()); r.Err != nil {
			t.Fatal(verb, name, r.Err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	want := map[string]bool{}
	for range 3000 {
		name := fmt.Sprintf("%c%d", "abAB"[rng.IntN(4)], rng.IntN(200))
		switch {
		case want[name] && rng.IntN(3) == 0:
			do(Close, name)
			do(Delete, name)
			delete(want, name)
		default:
			do(Ensure, name)
			want[name] = true
		}
	}
	check := func() {
		t.Helper()
		names := slices.Sorted(maps.Keys(want))
		var got []string
		for after := ""; ; {
			page := topics.List(after, 7)
			for _, v := range page {
				got = append(got, v.Name)
			}
			if len(page) < 7 {
				break
			}
			after = got[len(got)-1]
		}
		if !slices.Equal(got, names) {
			t.Fatalf("%d names, want %d", len(got), len(names))
		}
		for _, prefix := range []string{"", "a", "a1", "b", "B19", "c", "\xff"} {
			n := 0
			for _, name := range names {
				if strings.HasPrefix(name, prefix) {
					n++
				}
			}
			if got := topics.Count(prefix, 1000, func(*timer.Topic) bool { return true }); got != n {
				t.Errorf("%d begin with %q, counted %d", n, prefix, got)
			}
			if got := topics.Count(prefix, 3, func(*timer.Topic) bool { return true }); got != min(n, 3) {
				t.Errorf("%d begin with %q, counted %d of up to 3", n, prefix, got)
			}
		}
	}
	check()
	again := NewState(nil, nil)
	testkit.Must(t, again.Load(topics.Save()))
	topics = again
	check()
}

// TestTopicVersions: each change that a client can see makes the next version, and a change for
// another version, or for another life of the topic, is refused and changes nothing.
func TestTopicVersions(t *testing.T) {
	s := founded(t, 2, 1, 2)
	p := timer.DefaultPolicy()
	other := p
	other.Key = "k"
	version := func() (timer.TopicID, uint32) {
		topic, _ := s.Named("a")
		return topic.ID, topic.Version
	}
	do(t, s, Command{Verb: Put, Name: "a", Policy: &p})
	id, first := version()
	for _, c := range []struct {
		cmd   Command
		grows uint32
	}{
		{Command{Verb: Pause, Name: "a"}, 1}, {Command{Verb: Pause, Name: "a"}, 0}, {Command{Verb: Resume, Name: "a"}, 1}, {Command{Verb: Put, Name: "a", Policy: &other}, 1},
		{Command{Verb: Turn, Name: "a", ID: id}, 0}, {Command{Verb: Turned, Name: "a", ID: id, Turn: 1}, 0}, {Command{Verb: Close, Name: "a", ID: id}, 0}, {Command{Verb: Reopen, Name: "a", ID: id}, 0},
	} {
		_, before := version()
		do(t, s, c.cmd)
		if _, after := version(); after != before+c.grows {
			t.Errorf("%s: version %d after %d", c.cmd.Verb, after, before)
		}
	}
	_, last := version()
	for _, c := range []Command{
		{Verb: Put, Name: "a", Policy: &p, ID: id, IfVersion: first}, {Verb: Put, Name: "a", Policy: &p, ID: id + 1, IfVersion: last},
		{Verb: Put, Name: "b", Policy: &p, ID: id, IfVersion: last}, {Verb: Put, Name: "a", Policy: &p, IfNew: true}, {Verb: Close, Name: "a", ID: id, IfVersion: last + 1},
	} {
		before := s.Hash()
		if r := s.applied(1, c.Encode()); !errors.Is(r.Err, timer.ErrTopicVersion) || s.Hash() != before {
			t.Errorf("%+v: %v", c, r.Err)
		}
	}
	do(t, s, Command{Verb: Put, Name: "a", Policy: &p, ID: id, IfVersion: last})
	do(t, s, Command{Verb: Put, Name: "b", Policy: &p, IfNew: true})
}

// TestTopicsOfOutcomes: a policy names topics that are there and are not serial, and a topic that
// others name is deleted by force alone.
func TestTopicsOfOutcomes(t *testing.T) {
	m := NewState(nil, nil)
	policy := func(onDone, onDead string) *timer.Policy {
		p := timer.DefaultPolicy()
		p.OnDone, p.OnDead = onDone, onDead
		return &p
	}
	serial := timer.DefaultPolicy()
	serial.Serial = true
	do(t, m, Command{Verb: Put, Name: "serial", Policy: &serial})
	failed := do(t, m, Command{Verb: Put, Name: "failed", Policy: policy("", "")}).Topic
	for _, p := range []*timer.Policy{policy("nowhere", ""), policy("", "nowhere"), policy("serial", "failed")} {
		if r := do(t, m, Command{Verb: Put, Name: "a", Policy: p}); !errors.Is(r.Err, timer.ErrOutcomeTopic) {
			t.Errorf("a policy that names %q and %q: %+v", p.OnDone, p.OnDead, r)
		}
	}
	do(t, m, Command{Verb: Put, Name: "a", Policy: policy("failed", "failed")})
	do(t, m, Command{Verb: Put, Name: "b", Policy: policy("", "failed")})
	if r := do(t, m, Command{Verb: Put, Name: "failed", Policy: &serial}); !errors.Is(r.Err, timer.ErrNamedSerial) {
		t.Errorf("a topic that others name became serial: %+v", r)
	}
	do(t, m, Command{Verb: Put, Name: "failed", Policy: policy("failed", "")}) // its own name does not count
	itself := *policy("", "failed")
	itself.Serial = true
	if r := do(t, m, Command{Verb: Put, Name: "failed", Policy: &itself}); !errors.Is(r.Err, timer.ErrNamedSerial) {
		t.Errorf("a topic that names itself became serial: %+v", r)
	}
	if r := do(t, m, Command{Verb: Put, Name: "serial", Policy: &serial}); r.Err != nil {
		t.Errorf("a topic that is serial stays so: %+v", r)
	}
	closed := Command{Verb: Close, Name: "failed", ID: failed.ID}
	for range 2 {
		if r := do(t, m, closed); !errors.Is(r.Err, timer.ErrNamed) {
			t.Fatalf("a topic that policies name was closed: %+v", r)
		}
		do(t, m, Command{Verb: Put, Name: "a", Policy: policy("", "")})
	}
	do(t, m, Command{Verb: Put, Name: "b", Policy: policy("", "")})
	if r := do(t, m, closed); r.Err != nil {
		t.Fatalf("a topic that none names: %+v", r)
	}
	if r := do(t, m, Command{Verb: Put, Name: "b", Policy: policy("", "failed")}); !errors.Is(r.Err, timer.ErrOverloaded) {
		t.Errorf("a topic that may be deleted was named: %+v", r)
	}
	do(t, m, Command{Verb: Reopen, Name: "failed", ID: failed.ID})
	do(t, m, Command{Verb: Put, Name: "b", Policy: policy("", "failed")})
	do(t, m, Command{Verb: Close, Name: "failed", ID: failed.ID, Force: true})
	if r := do(t, m, Command{Verb: Put, Name: "c", Policy: policy("", "failed")}); !errors.Is(r.Err, timer.ErrOutcomeTopic) {
		t.Errorf("a topic that is being deleted was named: %+v", r)
	}
	do(t, m, Command{Verb: Delete, Name: "failed", ID: failed.ID})
	if r := do(t, m, Command{Verb: Put, Name: "b", Policy: policy("", "failed")}); r.Err != nil {
		t.Errorf("a policy that keeps what it named: %+v", r)
	}
	if !m.Given(failed.ID) || m.Given(failed.ID+10) {
		t.Error("ids that were given are not known")
	}
}

// TestLimitedTopics: the limits of leases at once are those of the topics as they are, after any
// changes, and after a snapshot.
func TestLimitedTopics(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 1))
	topics := NewTopics(nil)
	for n := range 1000 {
		c := Command{Verb: Put, Name: fmt.Sprint("t", random.IntN(600)), Force: true}
		switch old := topics.byName[c.Name]; {
		case random.IntN(3) == 0 && old != nil:
			c.Verb = Close
			topics.apply(1, &c)
			c.Verb = Delete
		case random.IntN(3) == 0:
			c.Verb = Pause
		}
		p := timer.DefaultPolicy()
		p.Concurrency = random.IntN(2)
		if random.IntN(2) == 0 {
			p.PerKey = &timer.PerKey{Concurrency: random.IntN(2), Rate: timer.Rate{PerSecond: 1, Burst: 1}}
		}
		c.Policy = &p
		topics.apply(1, &c)
		var want []*timer.Topic
		for _, v := range topics.byID {
			for _, v := range []*timer.Topic{v, v.Keyless()} {
				if v != nil && v.Policy.Concurrency > 0 {
					want = append(want, v)
				}
			}
		}
		slices.SortFunc(want, func(a, b *timer.Topic) int { return cmp.Compare(a.ID, b.ID) })
		if got := topics.Limited(); !reflect.DeepEqual(got, want) {
			t.Fatalf("after %d changes: %d limits, want %d", n, len(got), len(want))
		}
		if n%100 == 0 {
			topics.replace(newTopicSet(topics.lastID, slices.Concat(topics.list...)))
		}
		if got := topics.Limited(); !reflect.DeepEqual(got, want) {
			t.Fatalf("after a snapshot: %d limits, want %d", len(got), len(want))
		}
	}
}
