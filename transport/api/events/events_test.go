package events

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"carillon/test/sim/forged"
	"carillon/transport/api/backend"
)

// TestStrangersTextsInEvents: an error of a receiver and the names in an event are one event each.
func TestStrangersTextsInEvents(t *testing.T) {
	for name, text := range forged.Texts() {
		out := string(appendEvent(nil, &backend.Event{Kind: backend.EventFired, Topic: text, ID: text, Labels: []string{text}, Error: text, Destination: text, State: text, Node: "n1", Result: "retry"}))
		rest, ok := strings.CutPrefix(out, "event: fired\ndata: ")
		body, end, _ := strings.Cut(rest, "\n")
		var v map[string]any
		if err := json.Unmarshal([]byte(body), &v); !ok || end != "\n" || strings.Contains(body, "\r") || err != nil {
			t.Fatalf("%s: %q: %v", name, out, err)
		}
		if utf8.ValidString(text) && (v["error"] != text || v["id"] != text || v["topic"] != text || v["destination"] != text || v["node"] != "n1") {
			t.Errorf("%s came back as %v", name, v)
		}
	}
}
