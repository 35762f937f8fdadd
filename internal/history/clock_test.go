package history

import "testing"

const year = 8766 * hour

// A clock that is not believed ages nothing, however far ahead it is.
func TestNothingGoesByAClockInDoubt(t *testing.T) {
	sure := true
	r := newStoreHarness(t, 3, func(c *Config) { c.Sure = func() bool { return sure } })
	for range 200 {
		r.now += hour / 8
		r.entry()
		r.store.Maintain()
	}
	before, right := r.store.Stats(), r.now
	sure = false
	r.now += 10 * year
	for range 20 {
		r.entry()
		r.store.Maintain()
	}
	r.now = right
	r.store.Maintain()
	sure = true
	r.store.Maintain()
	if now := r.store.Stats(); now.Files < before.Files || now.Dropped != 0 {
		t.Errorf("%d files of %d are left, %d events were dropped", now.Files, before.Files, now.Dropped)
	}
	r.check()
}

// A record that was written by a clock that was ahead is as old as the one after it, and goes like
// all others.
func TestHistoryOfTheFutureGoes(t *testing.T) {
	for _, ahead := range []int64{2 * hour, 10 * year} {
		r := newStoreHarness(t, 4, nil)
		write := func(hours int) {
			for range 8 * hours {
				r.now += hour / 8
				r.entry()
				r.store.Maintain()
			}
		}
		write(5)
		r.keep = 0 // nothing goes meanwhile: this test is not about that
		r.now += ahead
		write(2)
		r.now -= ahead
		r.keep = 72 * hour
		write(1)
		kept := r.store.Stats().Files
		write(60)
		if now := r.store.Stats().Files; now < kept {
			t.Errorf("ahead by %d h: files went before their time: %d of %d are left", ahead/hour, now, kept)
		}
		write(90)
		future := 0
		for _, f := range r.store.files {
			if f.startMs > r.now || f.index.maxMs > r.now {
				future++
			}
		}
		if future > 0 {
			t.Errorf("ahead by %d h: %d files of the future are still there", ahead/hour, future)
		}
	}
}
