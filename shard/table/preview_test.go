package table

import (
	"reflect"

	"carillon/shard/table/content"
	"carillon/timer"
)

// preview previews the one command of a turn, and returns the comparison with what the table made
// of it.
func (mh *modelHarness) preview(items int) (compare func([]timer.Result)) {
	c := mh.drawn
	if items != 1 || c == nil || c.Kind != timer.Add && c.Kind != timer.Put && c.Kind != timer.Modify || mh.table.Closed(c.Topic) {
		return func([]timer.Result) {}
	}
	nowMs := max(mh.now, mh.table.clockMs)
	cur := mh.table.Read(c.Topic, c.ID)
	if collects := c.Kind == timer.Add && c.Merge == timer.MergeCollect; collects && (c.Spec.Collect.Part != "" || c.Spec.PayloadKind != timer.JSONPayload || c.Spec.Repeat != nil) {
		return func([]timer.Result) {} // it knows no parts, and the API refuses the others
	}
	if cur != nil && cur.State.Over() && nowMs-cur.EndedMs > timer.KeptMs {
		return func([]timer.Result) {} // the entry may drop it first
	}
	var before timer.Timer
	if cur != nil {
		before = *cur
	}
	want := timer.Preview(c, cur, nowMs)
	if cur != nil && !reflect.DeepEqual(*cur, before) {
		mh.t.Fatalf("the preview of %+v changed the timer", c)
	}
	behind := cur != nil && c.Kind == timer.Add && (mh.model.shown(c.Topic, c.ID) != mh.model.last(c.Topic, c.ID) || c.Merge == timer.MergeCollect && (cur.State == timer.Leased && cur.Successor || want.Timer != nil && want.Timer.Successor))
	return func(got []timer.Result) {
		mh.t.Helper()
		if got[0].Code == timer.TopicClosed {
			return // the topic of its outcomes
		}
		if behind || c.Merge == timer.MergeCollect && cur != nil && mh.table.viewOf(got[0].Handle).Flags&content.NoExpiry != 0 {
			return // the add goes to another timer than the one that is shown
		}
		if got[0].Code != want.Code || (got[0].Timer == nil) != (want.Timer == nil) {
			mh.t.Fatalf("%+v of %+v answers %+v, previewed as %+v", c, cur, got[0], want)
		}
		if got[0].Timer == nil {
			return
		}
		is, was := *got[0].Timer, *want.Timer
		is.FirstMs = was.FirstMs // for the next preview only
		if want.Code == timer.Created {
			is.Seq = 0 // given by the table
			if cur == nil {
				is.Version = was.Version // the id was used before
			}
		}
		if !reflect.DeepEqual(is, was) {
			mh.t.Fatalf("%+v makes\n%+v\npreviewed as\n%+v", c, is, was)
		}
	}
}
