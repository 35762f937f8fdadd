package node

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"carillon/shard/wire"
	"carillon/timer"
)

// A panic in the request of another node costs it the answer.
func TestPanicInAnAnswerToANode(t *testing.T) {
	var log bytes.Buffer
	h := peerHandler{p: &process{log: slog.New(slog.NewTextHandler(&log, nil))}}
	// 4: counts; there is no router.
	answer, err := h.answer(t.Context(), &core{}, 1, 4, wire.AppendCountsRequest(nil, []timer.TopicID{1}))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := wire.DecodeCounts(answer); !errors.Is(err, timer.ErrUnknown) {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "stack=") {
		t.Error(log.String())
	}
}
