package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// An add that may have been done is repeated only where the topic's policy rejects adds of an id
// that is in use: any other rule would do it twice. The policy is read only then.
func TestAddOfATopicThatMerges(t *testing.T) {
	timer, cut := reply{status: 200, body: oneTimer}, reply{cut: true}
	policy := func(merge string) reply {
		return reply{status: 200, body: fmt.Sprintf(`{"topic":"o","policy":{"merge":%q}}`, merge)}
	}
	named := Spec{ID: "a", At: at}
	for _, tt := range []struct {
		name    string
		add     Spec
		replies []reply
		asked   string // P an add, G the topic
		good    bool
	}{
		{"no loss", named, []reply{timer}, "P", true},
		{"reject", named, []reply{cut, policy("reject"), timer}, "PGP", true},
		{"two losses", named, []reply{cut, policy("reject"), cut, policy("reject"), timer}, "PGPGP", true},
		{"a changed policy", named, []reply{cut, policy("reject"), cut, policy("collect"), timer}, "PGPG", false},
		{"keep", named, []reply{cut, policy("keep"), timer}, "PG", false},
		{"replace", named, []reply{cut, policy("replace"), timer}, "PG", false},
		{"debounce", named, []reply{cut, policy("debounce"), timer}, "PG", false},
		{"collect", named, []reply{cut, policy("collect"), timer}, "PG", false},
		{"no policy", named, []reply{cut, {status: 200, body: `{}`}, timer}, "PG", false},
		{"no topic", named, []reply{cut, problem(404, "unknown_topic"), timer}, "PGP", true},
		{"no node's 404", named, []reply{cut, {status: 404, body: "<html>"}, timer}, "PG", false},
		{"a token that may not read", named, []reply{cut, problem(403, "forbidden"), timer}, "PG", false},
		{"a policy after a while", named, []reply{cut, problem(503, "no_leader"), cut, policy("reject"), timer}, "PGGGP", true},
		{"no answer about the policy", named, []reply{cut}, "PGGGGG", false},
		{"unavailable", named, []reply{problem(503, "unavailable"), policy("collect"), timer}, "PG", false},
		{"503 of something between", named, []reply{{status: 503, body: "<html>"}, policy("collect"), timer}, "PG", false},
		{"refused: no leader", named, []reply{problem(503, "no_leader"), timer}, "PP", true},
		{"refused: overloaded", named, []reply{problem(503, "overloaded"), timer}, "PP", true},
		{"refused: low disk", named, []reply{problem(503, "low_disk"), timer}, "PP", true},
		{"refused: quota", named, []reply{problem(429, "quota"), timer}, "PP", true},
		{"its own rule rejects", Spec{ID: "a", At: at, Merge: MergeReject}, []reply{cut, timer}, "PP", true},
		{"a part", Spec{ID: "a", Delay: 1, Part: "p"}, []reply{cut, timer}, "PP", true},
		{"a key, whose adds reject", Spec{IdempotencyKey: "k", Delay: 1}, []reply{cut, timer}, "PP", true},
	} {
		node := newNode(t, tt.replies...)
		c, _ := newClient(t, Options{}, node)
		_, err := c.Add(t.Context(), "o", tt.add)
		asked := ""
		for _, line := range node.seen() {
			asked += line[:1]
			if line[0] == 'G' && line != "GET /v1/topics/o" {
				t.Errorf("%s: %s", tt.name, line)
			}
		}
		if (err == nil) != tt.good || asked != tt.asked {
			t.Errorf("%s: %v after %s, want %s", tt.name, err, asked, tt.asked)
		}
		p := asProblem(err)
		if err != nil && (p == nil) != tt.replies[0].cut || p != nil && p.Status != tt.replies[0].status {
			t.Errorf("%s: %v is not the error of the add", tt.name, err)
		}
	}
}

// No node has seen an add that no connection took.
func TestAddThatWasNeverSentIsRepeated(t *testing.T) {
	good := newNode(t, reply{status: 200, body: oneTimer})
	c, _ := newClient(t, Options{}, noNode())
	c.sleep = func(context.Context, time.Duration) error {
		c.nodes[0] = good.URL
		return nil
	}
	if _, err := c.Add(t.Context(), "o", Spec{ID: "a", At: at}); err != nil || len(good.seen()) != 1 {
		t.Errorf("%v, %v", err, good.seen())
	}
}

// A put of a series begins its count again: what has come by then would come once more.
func TestPutOfACountedSeriesIsNotRepeated(t *testing.T) {
	for count, want := range map[int]int{0: 2, 3: 1} {
		node := newNode(t, reply{cut: true}, reply{status: 200, body: oneTimer})
		c, _ := newClient(t, Options{}, node)
		_, err := c.Put(t.Context(), "o", "a", Spec{At: at, Repeat: &Repeat{Every: time.Minute, Count: count}}, Cond{})
		if (err == nil) != (want == 2) || len(node.seen()) != want {
			t.Errorf("count %d: %v after %v", count, err, node.seen())
		}
	}
}

// A caller that waits no longer has the add's error.
func TestAddEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	node := newNode(t, reply{cut: true})
	c, _ := newClient(t, Options{}, node)
	c.sleep = func(context.Context, time.Duration) error {
		cancel()
		return nil
	}
	if _, err := c.Add(ctx, "o", Spec{ID: "a", At: at}); err == nil || errors.Is(err, context.Canceled) || len(node.seen()) != 1 {
		t.Errorf("%v after %v", err, node.seen())
	}
}

// A batch cannot carry an IdempotencyKey: an add that has one is refused, and not added without it.
func TestBatchTakesNoIdempotencyKey(t *testing.T) {
	node := newNode(t, reply{status: 200, body: `{"results":[{"status":201,"id":"s0001-a"}]}`})
	c, _ := newClient(t, Options{}, node)
	_, err := c.Batch(t.Context(), "o", []Op{AddOp(Spec{IdempotencyKey: "k", Delay: Now})}, false)
	if err == nil || !strings.Contains(err.Error(), "IdempotencyKey") || len(node.seen()) != 0 {
		t.Errorf("%v after %v", err, node.seen())
	}
}
