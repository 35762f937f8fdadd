package client

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
)

// TestShardOf: shards are found as nodes find them. The program's own tests compare more of them.
func TestShardOf(t *testing.T) {
	text, err := os.ReadFile("../clients/testdata/shards.txt")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		var topic, id string
		var shards, want int
		if _, err := fmt.Sscan(line, &topic, &id, &shards, &want); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got := ShardOf(topic, id, shards); got != want {
			t.Errorf("%q: %d", line, got)
		}
	}
}

// leads is what a node answers that has passed a request on.
func (f *fakeNode) leads(t *testing.T, shard, shards int) reply {
	u, err := url.Parse(f.URL)
	must(t, err)
	return reply{status: 200, body: oneTimer, leader: fmt.Sprintf(`"%s";shard=%d;shards=%d`, u.Host, shard, shards)}
}

// TestCallsGoToTheLeader: a call about a timer goes to the node that an answer has named for its
// shard; one about another shard still goes to the node that was asked before.
func TestCallsGoToTheLeader(t *testing.T) {
	const shards = 4
	first, leader := newNode(t, reply{status: 200, body: oneTimer}), newNode(t, reply{status: 200, body: oneTimer})
	c, _ := newClient(t, Options{}, first, leader)
	// An id in the shard of "a", and one in another.
	at := ShardOf("o", "a", shards)
	same, other := "", ""
	for n := 0; same == "" || other == ""; n++ {
		if id := fmt.Sprint("t", n); ShardOf("o", id, shards) == at {
			same = id
		} else {
			other = id
		}
	}
	get := func(id string) {
		t.Helper()
		if _, err := c.Get(t.Context(), "o", id); err != nil {
			t.Fatal(err)
		}
	}
	asked := func(wantFirst, wantLeader int) {
		t.Helper()
		if a, b := len(first.seen()), len(leader.seen()); a != wantFirst || b != wantLeader {
			t.Fatalf("%d calls at the first node and %d at the leader, want %d and %d", a, b, wantFirst, wantLeader)
		}
	}
	first.seen(leader.leads(t, at, shards), reply{status: 200, body: oneTimer})
	get("a")
	asked(1, 0)
	get("a")
	get(same)
	asked(1, 2)
	get(other)
	asked(2, 2)
	if _, err := c.Add(t.Context(), "o", Spec{ID: same, Delay: 1}); err != nil {
		t.Fatal(err)
	}
	asked(2, 3)
	if _, err := c.Add(t.Context(), "o", Spec{Key: "a", Delay: 1}); err != nil { // in the shard of the id "a"
		t.Fatal(err)
	}
	asked(2, 4)
	if _, err := c.Add(t.Context(), "o", Spec{Delay: 1}); err != nil { // the node chooses its shard
		t.Fatal(err)
	}
	asked(3, 4)
	leader.seen(first.leads(t, at, shards)) // it leads no more
	get("a")
	get("a")
	asked(4, 5)
}

// TestLeaderIsGone: calls to a leader that takes no connection, or cannot answer, go to the next
// node.
func TestLeaderIsGone(t *testing.T) {
	first, leader := newNode(t, reply{status: 200, body: oneTimer}), newNode(t, reply{status: 200, body: oneTimer})
	gone := noNode()
	c, _ := newClient(t, Options{Retries: -1}, first, leader, gone)
	at := ShardOf("o", "a", 1)
	first.seen(leader.leads(t, at, 1), reply{status: 200, body: oneTimer})
	for range 2 {
		if _, err := c.Get(t.Context(), "o", "a"); err != nil {
			t.Fatal(err)
		}
	}
	leader.seen(problem(503, "overloaded"))
	if _, err := c.Get(t.Context(), "o", "a"); err == nil {
		t.Fatal("no error")
	}
	if _, err := c.Get(t.Context(), "o", "a"); err != nil || len(first.seen()) != 2 {
		t.Fatalf("%v after %d calls", err, len(first.seen()))
	}
	first.seen(gone.leads(t, at, 1), reply{status: 200, body: oneTimer})
	if _, err := c.Get(t.Context(), "o", "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Fire(t.Context(), "o", "a", Cond{}); err != nil { // which must not be made twice
		t.Fatal(err)
	}
}

// TestStrangersAreNotAsked: an answer cannot send a client, and its token, to a node that it was
// not given; and what is not of the header's form is passed over.
func TestStrangersAreNotAsked(t *testing.T) {
	first, stranger := newNode(t, reply{status: 200, body: oneTimer}), newNode(t, reply{status: 200, body: oneTimer})
	c, _ := newClient(t, Options{Token: "crl_x"}, first)
	own, err := url.Parse(first.URL)
	must(t, err)
	texts := []string{stranger.leads(t, 1, 1).leader, "", `"`, `"";shard=1;shards=1`, `"x";shard=1`, `"x";shard=0;shards=1`, `"x";shard=2;shards=1`,
		`"x";shard=1;shards=65536`, `"x";shard=a;shards=1`, `x;shard=1;shards=1`, `"x";shards=1;shard=1`, `"` + own.Host + `";shard=-1;shards=-1`}
	for n, text := range texts {
		first.seen(reply{status: 200, body: oneTimer, leader: text})
		if _, err := c.Get(t.Context(), "o", "a"); err != nil {
			t.Fatal(err)
		}
		if len(first.seen()) != n+1 || len(stranger.seen()) != 0 {
			t.Fatalf("after %q: %d calls, %d at a stranger", text, len(first.seen()), len(stranger.seen()))
		}
		if at, known := c.leaders.Node("o", "a"); known {
			t.Fatalf("%q names node %d", text, at)
		}
	}
}

// The number of shards of a cluster never changes. A client that is given another cluster's nodes
// all the same asks any of them.
func TestLeadersOfAnotherNumberOfShards(t *testing.T) {
	l := NewLeaders([]string{"a:1", "b:1"})
	for shard := range 3 {
		l.Note(fmt.Sprintf(`"b:1";shard=%d;shards=3`, shard+1))
	}
	if at, known := l.Node("o", "x"); !known || at != 1 {
		t.Fatal(at, known)
	}
	l.Note(fmt.Sprintf(`"a:1";shard=%d;shards=5`, ShardOf("o", "x", 5)))
	if at, known := l.Node("o", "x"); !known || at != 0 {
		t.Fatal(at, known)
	}
	l.Forget("o", "x")
	if at, known := l.Node("o", "x"); known {
		t.Fatal(at)
	}
}
