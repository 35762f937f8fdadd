package shard

import "carillon/timer"

// Grow makes room for more groups, up to so many timer shards. Those above founded are divided from
// the shard with their number less founded; until one exists here, that shard answers for it
// (docs/adr/0067-shards-double.md). founded = shards: none is. It may be called from any goroutine
// once Started is closed, repeatedly, and before rows of the new groups are placed.
func (h *Host) Grow(shards, founded int) {
	h.growing.Lock()
	defer h.growing.Unlock()
	groups := h.all()
	more := append([]*replica(nil), groups...)
	for id := len(groups); id <= shards; id++ {
		more = append(more, h.newReplica(timer.ShardID(id)))
	}
	if len(more) > len(groups) {
		h.groups.Store(&more)
		for _, r := range more[len(groups):] {
			r.w.box.post(joined{r})
		}
	}
	h.founded.Store(int32(founded))
}

// joined adds a new group to its worker's.
type joined struct{ *replica }

func (j joined) handle(*worker) { j.join() }

// Division returns how far a shard is with its division: how many of its timers are looked at, of
// how many; whether the child's half has left it, and is dropped from it. Without a division all
// are zero.
func (h *Host) Division(id timer.ShardID) (marked, total int, divided, swept bool) {
	return 0, 0, false, false
}
