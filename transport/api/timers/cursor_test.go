package timers

import (
	"math"
	"testing"

	"carillon/timer"
	"carillon/transport/api/web"
)

// TestPlaceInACursor: an id that is a cursor is a place in a listing like any other.
func TestPlaceInACursor(t *testing.T) {
	inner := timerCursor(timer.SortKey{SortMs: 1, Seq: 2, ID: "a"}, timer.SlotRange{}, 3)
	if !web.ValidID(inner) {
		t.Fatal("a cursor is no id: the test tests nothing")
	}
	var q timer.Query
	if ok := parseTimerCursor(timerCursor(timer.SortKey{SortMs: 7, Seq: 8, ID: inner}, timer.SlotRange{}, 9), 9, &q); !ok || *q.After != (timer.SortKey{SortMs: 7, Seq: 8, ID: inner}) {
		t.Errorf("%+v", q.After)
	}
	if _, ok := web.ParseNameCursor(inner, ""); ok {
		t.Error("a place among timers is one among topics")
	}
}

// A cursor opens only if it was sealed for this listing, and then as it was.
func FuzzCursor(f *testing.F) {
	q := &timer.Query{Topic: 7, States: 6, Labels: []string{"a"}}
	listing := listingSum(q)
	f.Add("", int64(0), uint64(0), "a")
	f.Add(timerCursor(timer.SortKey{SortMs: noonMs, ID: "a", Seq: 3}, timer.SlotRange{}, listing), int64(-1), uint64(math.MaxUint64), "{k}x")
	f.Add(web.NameCursor("orders", ""), int64(math.MaxInt64), uint64(1), "..")
	f.Fuzz(func(t *testing.T, s string, sortMs int64, seq uint64, id string) {
		of, ofAll := *q, timer.Query{AllTopics: true}
		if parseTimerCursor(s, listing, &of) && timerCursor(*of.After, timer.SlotRange{}, listing) != s {
			t.Fatalf("%q opened as %+v", s, of.After)
		}
		if parseTimerCursor(s, listing, &ofAll) && ofAll.After == nil && timerCursor(timer.SortKey{}, ofAll.Slots, listing) != s {
			t.Fatalf("%q opened as %+v", s, ofAll)
		}
		if name, ok := web.ParseNameCursor(s, "or"); ok && web.NameCursor(name, "or") != s {
			t.Fatalf("%q opened as %q", s, name)
		}
		if k, ok := parseHistoryCursor(s, listing); ok {
			if again, ok := parseHistoryCursor(historyCursor(*k, listing), listing); !ok || *again != *k {
				t.Fatalf("%q opened as %+v, then as %+v", s, k, again)
			}
		}
		was := timer.HistoryKey{EndMs: sortMs, Index: seq, Shard: timer.ShardID(seq >> 40), Item: uint32(seq)}
		if k, ok := parseHistoryCursor(historyCursor(was, listing), listing); !ok || *k != was {
			t.Fatalf("%+v came back as %+v %v", was, k, ok)
		}
		key := timer.SortKey{SortMs: sortMs, ID: id, Seq: seq}
		sealed := timerCursor(key, timer.SlotRange{}, listing)
		of = *q
		ok := parseTimerCursor(sealed, listing, &of)
		if ok != web.ValidID(id) && len(sealed) <= web.MaxCursorBytes || ok && *of.After != key {
			t.Fatalf("%+v came back as %+v %v", key, of.After, ok)
		}
		for _, slots := range []timer.SlotRange{{}, {To: 9}, {From: timer.Handle(seq)}, {From: timer.Handle(seq >> 1 & math.MaxInt32), To: math.MaxUint32}} {
			key.Topic = timer.TopicID(seq)
			if key.Topic == 0 || !web.ValidID(id) {
				break
			}
			ofAll = timer.Query{AllTopics: true}
			sealed := timerCursor(key, slots, listing)
			if ok := parseTimerCursor(sealed, listing, &ofAll); ok != (len(sealed) <= web.MaxCursorBytes) || ok && (*ofAll.After != key || ofAll.Slots != slots) {
				t.Fatalf("%+v, %d came back as %+v %v", key, slots, ofAll, ok)
			}
		}
		if of = *q; parseTimerCursor(sealed, listing+1, &of) {
			t.Fatal("opened for another listing")
		}
		if _, ok := web.ParseNameCursor(sealed, ""); ok {
			t.Fatal("opened as a cursor of topics")
		}
	})
}
