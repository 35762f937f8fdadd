package route

import (
	"context"
	"errors"
	"testing"

	"carillon/timer"
)

// TestRouterProgress: through any node, the leader of the shard tells; a node that is believed to
// lead names it.
func TestRouterProgress(t *testing.T) {
	f := newFakeCluster(3, 6)
	q := &timer.ProgressQuery{Topic: 1, IDs: []string{"a", "b"}, Attempts: true}
	check := func(who string, n *fakeNode, id timer.ShardID) {
		t.Helper()
		list, err := n.Progress(t.Context(), id, q)
		if err != nil || len(list) != 2 || list[1].For != timer.WaitConsumer || list[1].On != "b" || len(list[1].Attempts) != 1 {
			t.Errorf("%s, shard %d: %+v %v", who, id, list, err)
		}
	}
	for _, n := range f.nodes {
		for id := timer.ShardID(1); id <= 6; id++ {
			check("leaders are known", n, id)
		}
	}
	f.leaders[2] = 3
	f.nodes[1].thinks = 2
	check("another is believed to lead", f.nodes[1], 2)
	f.leaders[2] = 0
	if list, err := f.nodes[1].Progress(t.Context(), 2, q); err == nil {
		t.Errorf("nobody leads, and there is an answer: %+v", list)
	}
}

// TestRouterProgressOfOlderRelease: a node that does not know the question costs one try.
func TestRouterProgressOfOlderRelease(t *testing.T) {
	f := newFakeCluster(2, 2)
	asked := 0
	f.onCall = func(context.Context, fakeCall, func() ([]byte, error)) ([]byte, error) {
		asked++
		return nil, errors.New("route: method 13 is not known here")
	}
	if list, err := f.nodes[1].Progress(t.Context(), 2, &timer.ProgressQuery{Topic: 1, IDs: []string{"a"}}); err == nil || asked != 1 {
		t.Errorf("asked %d times: %+v %v", asked, list, err)
	}
}
