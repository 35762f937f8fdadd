package node

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"carillon/shard"
)

// A panic on a goroutine that a request has started goes on in the request, where the API makes a 500 of it.
func TestPanicOfAFanReachesItsRequest(t *testing.T) {
	var all fan
	done := make([]bool, 3)
	for i := range done {
		all.Go(func() {
			if i == 1 {
				panic("detail")
			}
			done[i] = true
		})
	}
	defer func() {
		if v := recover(); v == nil || !strings.Contains(v.(string), "detail") || !done[0] || !done[2] {
			t.Errorf("recovered %.80v, done %v", v, done)
		}
	}()
	all.Wait()
	t.Error("the panic is gone")
}

// A panic in what another node has asked costs it the answer.
func TestPanicInAnAnswerToANode(t *testing.T) {
	var log bytes.Buffer
	l := links{&process{log: slog.New(slog.NewTextHandler(&log, nil))}}
	answer, err := l.answer(t.Context(), &core{}, 1, methodCounts, shard.AppendCountsRequest(nil, []shard.TopicID{1})) // there is no router
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := shard.DecodeCounts(answer); !errors.Is(err, shard.ErrUnknown) {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "stack=") {
		t.Error(log.String())
	}
}
