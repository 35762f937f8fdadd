package table

import (
	"fmt"
	"testing"

	"carillon/timer"
)

func TestDebounceScope(t *testing.T) {
	d := newTableHarness(t)
	debounce := func(wait int64) timer.Result {
		return d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: d.now + 9e6}, Merge: timer.MergeDebounce, MaxWaitMs: wait, Content: uint64(d.now)})
	}
	start := d.now
	want := func(what string, got timer.Result, code timer.Code, due int64) {
		t.Helper()
		if got.Code != code || got.Timer.DueMs != due {
			t.Errorf("%s: code %d, due %d ms after the start, want %d", what, got.Code, got.Timer.DueMs-start, due-start)
		}
	}
	want("first", debounce(60_000), timer.Created, start+60_000)
	d.now += 10_000
	want("second", debounce(60_000), timer.Merged, start+60_000)
	d.command(timer.Command{Kind: timer.Add, Spec: &timer.Spec{DueMs: 5}, Merge: timer.MergeReplace})
	want("after a replace", debounce(50_000), timer.Merged, start+50_000)
	d.lease()
	d.end(Outcome{Kind: Kill, Reason: timer.Stopped, RetainUntilMs: d.now + 9e6})
	d.now += 100_000
	d.command(timer.Command{Kind: timer.Redrive})
	d.now += 1000
	again := d.now
	want("after a redrive", debounce(60_000), timer.Merged, again+60_000)
	d.now += 1000
	want("and again", debounce(60_000), timer.Merged, again+60_000)
	d.lease()
	d.end(Outcome{Kind: Ack})
	d.now += 1000
	want("after the end", debounce(60_000), timer.Created, d.now+60_000)
}

func TestMergeCommands(t *testing.T) {
	for _, c := range []struct {
		state string
		rule  timer.Merge
		want  timer.Code
	}{
		{"none", timer.MergeKeep, timer.Created}, {"done", timer.MergeKeep, timer.Created}, {"dead", timer.MergeReplace, timer.Created}, {"cancelled", timer.MergeDebounce, timer.Created},
		{"scheduled", timer.MergeKeep, timer.Merged}, {"scheduled", timer.MergeReplace, timer.Merged}, {"scheduled", timer.MergeDebounce, timer.Merged},
		{"leased", timer.MergeKeep, timer.Merged}, {"leased", timer.MergeReplace, timer.Merged}, {"leased", timer.MergeDebounce, timer.Merged},
	} {
		for _, content := range []uint64{5, 6} {
			t.Run(fmt.Sprint(c.state, c.rule, content), func(t *testing.T) {
				d := newTableHarness(t)
				states[c.state](d)
				if got := d.command(timer.Command{Kind: timer.Add, Content: content, Merge: c.rule}); got.Code != c.want {
					t.Errorf("code %d, want %d", got.Code, c.want)
				}
			})
		}
	}
	// Repeating an add with an absolute due time is safe under any merge rule.
	d := newTableHarness(t)
	states["leased"](d)
	if got := d.command(timer.Command{Kind: timer.Add, Content: 5, Merge: timer.MergeReplace, Absolute: true}); got.Code != timer.Same || got.Timer.Successor {
		t.Errorf("repeated: %+v", got)
	}
}
