package events

import (
	"testing"

	"carillon/shard/table"
	"carillon/timer"
)

type seen []*Event

func (s *seen) Watches(topic timer.TopicID) bool { return topic == 1 }
func (s *seen) Saw(e *Event)                     { *s = append(*s, e) }

// TestChangesThatTookEffectAreSeen: a watcher sees what a command changed, and nothing of a command
// that was refused or changed nothing, or of a topic that it does not watch.
func TestChangesThatTookEffectAreSeen(t *testing.T) {
	const now = int64(1_800_000_000_000)
	tab, w := table.New(1, 0), &seen{}
	watched := func(topic timer.TopicID) Watcher {
		if !w.Watches(topic) {
			return nil
		}
		return w
	}
	run := func(cmd timer.Command) {
		t.Helper()
		var b table.Batch
		b.Reset(now, 1, 1)
		b.SetLevel(1)
		b.Command(&cmd)
		list, err := tab.Apply(b.Bytes(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		Changed(tab, &cmd, &list[0], watched)
	}
	spec := &timer.Spec{DueMs: now + 1000}
	run(timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: spec})
	run(timer.Command{Kind: timer.Add, Topic: 2, ID: "a", Spec: spec})
	run(timer.Command{Kind: timer.Put, Topic: 1, ID: "a", Spec: &timer.Spec{DueMs: now + 2000}})
	run(timer.Command{Kind: timer.Modify, Topic: 1, ID: "none", Patch: &timer.Patch{}})
	run(timer.Command{Kind: timer.Add, Topic: 1, ID: "a", Spec: spec, Merge: timer.MergeKeep})
	run(timer.Command{Kind: timer.Resume, Topic: 1, ID: "a"})
	if len(*w) != 2 || (*w)[0].Kind != TimerAdded || (*w)[1].Kind != TimerChanged || (*w)[1].Timer.DueMs != now+2000 {
		t.Errorf("%d events: %+v", len(*w), *w)
	}
}
