package ring

import (
	"errors"
	"testing"

	"carillon/shard"
)

func do(t *testing.T, m *Topics, c Command) Reply {
	t.Helper()
	r, ok := m.Apply(1000, c.Encode()).(Reply)
	if !ok {
		t.Fatal("Apply did not answer a Reply")
	}
	return r
}

func TestTopicLife(t *testing.T) {
	changes := 0
	m := NewTopics(func() { changes++ })
	first := do(t, m, Command{Verb: Ensure, Name: "a"})
	if !first.Created || !first.Topic.AutoCreated || first.Topic.ID != 1 {
		t.Fatalf("ensure: %+v", first)
	}
	if again := do(t, m, Command{Verb: Ensure, Name: "a"}); again.Created || again.Topic != first.Topic {
		t.Fatalf("ensure again: %+v", again)
	}
	p := shard.DefaultPolicy()
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
	if r := do(t, m, Command{Verb: Delete, Name: "a", ID: 1}); !errors.Is(r.Err, shard.ErrNotEmpty) {
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
	if r := do(t, m, Command{Verb: Close, Name: "a", ID: 1}); !errors.Is(r.Err, shard.ErrNoTopic) {
		t.Fatalf("a command for a former life took effect: %+v", r)
	}
	if changes == 0 {
		t.Fatal("nobody was told")
	}
}

func TestMalformedCommandsChangeNothing(t *testing.T) {
	m := NewTopics(nil)
	for _, data := range []string{"", "{", `{"verb":"burn","name":"a"}`, `{"verb":"pause","name":"a"}`} {
		if r := m.Apply(0, []byte(data)).(Reply); r.Err == nil {
			t.Errorf("%q was taken", data)
		}
	}
	if n := len(m.List("", 10)); n != 0 {
		t.Fatalf("%d topics", n)
	}
}

func TestSaveLoad(t *testing.T) {
	m := NewTopics(nil)
	for _, name := range []string{"b", "a", "c"} {
		do(t, m, Command{Verb: Ensure, Name: name})
	}
	do(t, m, Command{Verb: Pause, Name: "b"})
	do(t, m, Command{Verb: Close, Name: "c"})
	do(t, m, Command{Verb: Delete, Name: "c"})
	other := NewTopics(nil)
	if err := other.Load(m.Save()); err != nil {
		t.Fatal(err)
	}
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
	m := NewTopics(nil)
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
