package member

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"carillon/internal/clocks"
	"carillon/ring"
	"carillon/timer"
)

// heartbeatSender sends this node's heartbeats. With each it decides whether this node may lead,
// and which others may. All its fields but mayLead belong to one task.
type heartbeatSender struct {
	*local
	seen   *observer
	limits *ring.LimitAllocator

	mayLead   atomic.Pointer[map[uint64]bool] // which nodes may lead; the map does not change
	cordoned  string                          // why this node should not, by the last heartbeat
	low       map[uint64]bool                 // whose disks were low by then
	clockHeld bool                            // the clock was not believed at the last heartbeat
}

func newHeartbeatSender(l *local, seen *observer, limits *ring.LimitAllocator) *heartbeatSender {
	return &heartbeatSender{local: l, seen: seen, limits: limits}
}

// send sends this node's report to all others, and compares theirs.
func (h *heartbeatSender) send() {
	now := h.clock.Mono()
	clock, wrong := h.judgeClock(now), ""
	if clock.Trust == clocks.Held {
		wrong = clock.Why
	}
	unhealthy := cmp.Or(h.Health.check(now, wrong, h.cfg.LacksKey()), h.host.Fault())
	switch {
	case unhealthy != "" && h.cordoned == "":
		h.log.Warn("this node hands its shards over to other nodes", "why", unhealthy)
	case unhealthy == "" && h.cordoned != "":
		h.log.Info("this node may lead shards again", "was", h.cordoned)
	}
	h.cordoned = unhealthy
	me, member := h.State.Node(h.id)
	cordoned := h.stopping.Load() || unhealthy != "" || member && me.State != ring.NodeMember
	h.host.Cordon(cordoned)
	beat := heartbeat{WallMs: clock.RawMs, Starts: h.Identity().Starts, Cordoned: cordoned, Unhealthy: unhealthy, Leads: h.seen.leads(),
		Clock: heartbeatClock{AheadMs: clock.AheadMs, Steps: clock.Steps, Steady: clock.Steady, Sure: clock.Trust == clocks.Sure}}
	beat.Limits = h.reportLimits(beat.believedMs())
	beat.LowDisk, beat.Tight = h.ownLowDisk(), h.host.MemoryTight()
	h.logLowDisks(&beat.LowDisk)
	_, synced := h.host.LogEnd()
	frame, logEnd, wrongReplicas := beat.encode(), encodeLogEnd(beat.Starts, synced), encodeWrong(h.host.Wrong())
	may := map[uint64]bool{h.id: !cordoned}
	nodes := h.State.Nodes()
	h.liveness.expect(now, nodes)
	for _, n := range nodes {
		if n.ID == h.id {
			continue
		}
		h.peers.Send(n.ID, slices.Clone(frame))
		h.peers.Send(n.ID, slices.Clone(logEnd))
		if wrongReplicas != nil {
			h.peers.Send(n.ID, slices.Clone(wrongReplicas))
		}
		p, ago, ok := h.liveness.last(now, n.ID)
		may[n.ID] = ok && ago < suspectAfter && !p.last.Cordoned && n.State == ring.NodeMember
	}
	h.mayLead.Store(&may)
	h.reportSizes(now, beat.Leads)
}

// judgeClock compares this node's clock with the others' and returns its state.
func (h *heartbeatSender) judgeClock(now time.Duration) clocks.State {
	var peers []clocks.Peer
	nodes := h.State.Nodes()
	for _, n := range nodes {
		p, ago, ok := h.liveness.last(now, n.ID)
		if n.ID == h.id || !ok || ago >= suspectAfter {
			continue
		}
		if c, known := p.clock(n.ID, ago); known {
			peers = append(peers, c)
		}
	}
	h.clock.Judge(h.id, len(nodes), peers)
	state := h.clock.State()
	h.logClock(&state)
	return state
}

// logClock logs when this node ceases to trust its clock, and when it trusts it again.
func (h *heartbeatSender) logClock(state *clocks.State) {
	switch held := state.Trust == clocks.Held; {
	case held && !h.clockHeld:
		h.log.Error("this node does not trust its clock: it starts, expires and deletes nothing until other nodes confirm the clock or, if none can, "+
			"it has been steady for a while; check its time service", "why", state.Why, "ahead_ms", state.AheadMs)
		h.clockHeld = true
	case state.Trust == clocks.Sure && h.clockHeld:
		h.log.Warn("this node trusts its clock again", "clock", time.UnixMilli(state.RawMs).UTC())
		h.clockHeld = false
	}
}

// reportLimits reports in each heartbeat how many of topics' leases at once this node may come to;
// see ring.LimitAllocator.
func (h *heartbeatSender) reportLimits(wallMs int64) ring.AllocationReport {
	shards, _ := h.Shards()
	leader := h.seen.Leaders()
	st := ring.Observation{
		Now: h.clock.Mono(), WallMs: wallMs, Shards: shards, Leads: map[uint64]int64{}, Topics: h.State.Limited(), Held: h.host.Held, Keys: h.host.KeyWeights,
	}
	for id, node := range leader {
		if int(id) <= shards {
			st.Leads[node]++
		}
	}
	for _, n := range h.State.Nodes() {
		if n.ID != h.id {
			st.Others = append(st.Others, n.ID)
		}
	}
	return h.limits.Tick(&st)
}

// ownLowDisk is this node's report of its disk; no Limit: it has room.
func (h *heartbeatSender) ownLowDisk() timer.LowDiskError {
	d := h.host.Disk()
	if !d.Low {
		return timer.LowDiskError{}
	}
	return timer.LowDiskError{Node: h.id, Name: h.cfg.Name, Path: h.cfg.Dir, Free: d.Free, Limit: d.Limit}
}

// logLowDisks logs when shards begin to refuse adds because of a disk, and when that ends.
func (h *heartbeatSender) logLowDisks(own *timer.LowDiskError) {
	low := h.seen.LowDisks()
	if own.Limit > 0 {
		low = append(low, *own)
	}
	now := map[uint64]bool{}
	for i := range low {
		e := &low[i]
		now[e.Node] = true
		if !h.low[e.Node] {
			h.log.Warn("a disk is low: shards with a voter on it refuse adds", "node", e.Name, "path", e.Path, "free", e.Free, "limit", e.Limit)
		}
	}
	for node := range h.low {
		if !now[node] {
			h.log.Info("a disk that was low has room again, or its node is down: shards with a voter on it accept adds again", "node", h.NameOf(node))
		}
	}
	h.low = now
}
