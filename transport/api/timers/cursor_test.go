package timers

import (
	"math"
	"testing"

	"carillon/timer"
	"carillon/transport/api/web"
)

// TestPlaceInACursor: an id that is a cursor is a place in a listing like any other.
func TestPlaceInACursor(t *testing.T) {
	inner := timerCursor(timer.SortKey{SortMs: 1, Seq: 2, ID: "a"}, 3)
	if !web.ValidID(inner) {
		t.Fatal("a cursor is no id: the test tests nothing")
	}
	k, ok := parseTimerCursor(timerCursor(timer.SortKey{SortMs: 7, Seq: 8, ID: inner}, 9), 9, false)
	if !ok || k.SortMs != 7 || k.Seq != 8 || k.ID != inner {
		t.Errorf("%+v", k)
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
	f.Add(timerCursor(timer.SortKey{SortMs: noonMs, ID: "a", Seq: 3}, listing), int64(-1), uint64(math.MaxUint64), "{k}x")
	f.Add(web.NameCursor("orders", ""), int64(math.MaxInt64), uint64(1), "..")
	f.Fuzz(func(t *testing.T, s string, sortMs int64, seq uint64, id string) {
		if k, ok := parseTimerCursor(s, listing, false); ok && timerCursor(*k, listing) != s {
			t.Fatalf("%q opened as %+v", s, k)
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
		sealed := timerCursor(key, listing)
		k, ok := parseTimerCursor(sealed, listing, false)
		if ok != web.ValidID(id) && len(sealed) <= web.MaxCursorBytes || ok && *k != key {
			t.Fatalf("%+v came back as %+v %v", key, k, ok)
		}
		if topic := uint32(seq); topic != 0 && web.ValidID(id) {
			key.Topic = timer.TopicID(topic)
			sealed := timerCursor(key, listing)
			if k, ok := parseTimerCursor(sealed, listing, true); ok != (len(sealed) <= web.MaxCursorBytes) || ok && *k != key {
				t.Fatalf("%+v came back as %+v %v", key, k, ok)
			}
		}
		if _, ok := parseTimerCursor(sealed, listing+1, false); ok {
			t.Fatal("opened for another listing")
		}
		if _, ok := web.ParseNameCursor(sealed, ""); ok {
			t.Fatal("opened as a cursor of topics")
		}
	})
}
