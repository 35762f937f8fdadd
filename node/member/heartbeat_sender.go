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
	limits *ring.Shares

	mayLead   nodeSet         // which nodes may lead
	cordoned  string          // why this node should not, by the last heartbeat
	low       map[uint64]bool // whose disks were low by then
	clockHeld bool            // the clock was not believed at the last heartbeat
}

func newHeartbeatSender(l *local, seen *observer, limits *ring.Shares) *heartbeatSender {
	return &heartbeatSender{local: l, seen: seen, limits: limits}
}

// send sends this node's report to all others, and compares theirs.
func (s *heartbeatSender) send() {
	now := s.clock.Mono()
	s.Health.lacksKey(s.cfg.LacksKey())
	clock, wrong := s.judgeClock(now), ""
	if clock.Trust == clocks.Held {
		wrong = clock.Why
	}
	unhealthy := cmp.Or(s.Health.check(now, wrong), s.host.Fault())
	s.logHealth(unhealthy)
	me, member := s.State.Node(s.id)
	cordoned := s.stopping.Load() || unhealthy != "" || member && me.State != ring.NodeMember
	s.host.Cordon(cordoned)
	h := heartbeat{WallMs: clock.RawMs, Starts: s.Identity().Starts, Cordoned: cordoned, Unhealthy: unhealthy, Leads: s.seen.leads(),
		Clock: heartbeatClock{AheadMs: clock.AheadMs, Steps: clock.Steps, Steady: clock.Steady, Sure: clock.Trust == clocks.Sure}}
	h.Limits = s.reportLimits(h.believedMs(), h.Leads)
	h.LowDisk = s.ownLowDisk()
	s.logLowDisks(&h.LowDisk)
	_, synced := s.host.LogEnd()
	frame, logEnd, wrongReplicas := h.encode(), encodeLogEnd(h.Starts, synced), encodeWrong(s.host.Wrong())
	may := map[uint64]bool{s.id: !cordoned}
	nodes := s.State.Nodes()
	s.liveness.expect(now, nodes)
	for _, n := range nodes {
		if n.ID == s.id {
			continue
		}
		s.peers.Send(n.ID, slices.Clone(frame))
		s.peers.Send(n.ID, slices.Clone(logEnd))
		if wrongReplicas != nil {
			s.peers.Send(n.ID, slices.Clone(wrongReplicas))
		}
		p, ago, ok := s.liveness.last(now, n.ID)
		may[n.ID] = ok && ago < suspectAfter && !p.last.Cordoned && n.State == ring.NodeMember
	}
	s.mayLead.set(may)
}

// logHealth logs why this node begins to hand its shards over, and when it may lead again.
func (s *heartbeatSender) logHealth(unhealthy string) {
	switch {
	case unhealthy != "" && s.cordoned == "":
		s.log.Warn("this node hands its shards over to other nodes", "why", unhealthy)
	case unhealthy == "" && s.cordoned != "":
		s.log.Info("this node may lead shards again", "was", s.cordoned)
	}
	s.cordoned = unhealthy
}

// judgeClock compares this node's clock with the others' and returns its state.
func (s *heartbeatSender) judgeClock(now time.Duration) clocks.State {
	var peers []clocks.Peer
	nodes := s.State.Nodes()
	for _, n := range nodes {
		p, ago, ok := s.liveness.last(now, n.ID)
		if n.ID == s.id || !ok || ago >= suspectAfter {
			continue
		}
		if c, known := p.clock(n.ID, ago); known {
			peers = append(peers, c)
		}
	}
	s.clock.Judge(s.id, len(nodes), peers)
	state := s.clock.State()
	s.logClock(&state)
	return state
}

// logClock logs when this node ceases to trust its clock, and when it trusts it again.
func (s *heartbeatSender) logClock(state *clocks.State) {
	switch held := state.Trust == clocks.Held; {
	case held && !s.clockHeld:
		s.log.Error("this node does not trust its clock: it starts, expires and deletes nothing until other nodes confirm the clock or, if none can, "+
			"it has been steady for a while; check its time service", "why", state.Why, "ahead_ms", state.AheadMs)
		s.clockHeld = true
	case state.Trust == clocks.Sure && s.clockHeld:
		s.log.Warn("this node trusts its clock again", "clock", time.UnixMilli(state.RawMs).UTC())
		s.clockHeld = false
	}
}

// reportLimits reports in each heartbeat how many of topics' leases at once this node may come to; see
// ring.Shares.
func (s *heartbeatSender) reportLimits(wallMs int64, mine []timer.ShardID) ring.Says {
	_, shards, _ := s.State.Cluster()
	leader := s.seen.Leaders()
	st := ring.Observation{
		Now: s.clock.Mono(), WallMs: wallMs, Shards: shards, Leads: map[uint64]int64{}, Mine: mine, Topics: s.State.Limited(), Held: s.host.Held,
	}
	for id, node := range leader {
		if int(id) <= shards {
			st.Leads[node]++
		}
	}
	for _, n := range s.State.Nodes() {
		if n.ID != s.id {
			st.Others = append(st.Others, n.ID)
		}
	}
	return s.limits.Look(&st)
}

// ownLowDisk is this node's report of its disk; no Limit: it has room.
func (s *heartbeatSender) ownLowDisk() timer.LowDiskError {
	d := s.host.Disk()
	if !d.Low {
		return timer.LowDiskError{}
	}
	return timer.LowDiskError{Node: s.id, Name: s.cfg.Name, Path: s.cfg.Dir, Free: d.Free, Limit: d.Limit}
}

// logLowDisks logs when shards begin to refuse adds because of a disk, and when that ends.
func (s *heartbeatSender) logLowDisks(own *timer.LowDiskError) {
	low := s.seen.LowDisks()
	if own.Limit > 0 {
		low = append(low, *own)
	}
	now := map[uint64]bool{}
	for i := range low {
		e := &low[i]
		now[e.Node] = true
		if !s.low[e.Node] {
			s.log.Warn("a disk is low: shards with a voter on it refuse adds", "node", e.Name, "path", e.Path, "free", e.Free, "limit", e.Limit)
		}
	}
	for node := range s.low {
		if !now[node] {
			s.log.Info("a disk that was low has room again, or its node is down: shards with a voter on it accept adds again", "node", s.NameOf(node))
		}
	}
	s.low = now
}

// nodeSet is a set of nodes that is replaced whole.
type nodeSet struct {
	nodes atomic.Pointer[map[uint64]bool]
}

// set replaces the set. The map must not change afterwards.
func (s *nodeSet) set(nodes map[uint64]bool) { s.nodes.Store(&nodes) }

func (s *nodeSet) has(node uint64) bool {
	nodes := s.nodes.Load()
	return nodes != nil && (*nodes)[node]
}
