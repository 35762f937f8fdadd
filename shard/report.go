package shard

import (
	"encoding/binary"
	"time"

	"carillon/timer"
)

// A leader that is not one any more tells the new one how the calls ended that it had started, and which of its leases were never
// used. So a change of leaders without a crash makes no call twice, and nobody waits for leases that are over.

// reportGrace is how long a report goes on beyond the lease, in case that nobody led meanwhile.
const reportGrace = time.Minute

// reportAtLeast is how long a report is repeated even if the lease seems to be over: the entry that took it may still be on its way.
const reportAtLeast = 3 * time.Second

// report begins to tell how a call ended.
func (l *scheduler) report(f *activeLease, a Attempt) {
	w := l.group.w
	f.phase, f.attempt = reporting, a
	l.uncount(f)
	f.until = w.mono + max(f.leaseEnd-w.lease, 0) + reportGrace
	f.askedAt = w.mono
	l.tellLeader(f)
}

// reportAll repeats what has not been heard.
func (l *scheduler) reportAll() {
	w := l.group.w
	if l.active || len(l.leases.byTimer) == 0 || w.mono < l.leases.reportAt {
		return
	}
	l.leases.reportAt = w.mono + reportEach
	for _, h := range l.activeHandles() {
		f := l.leases.byTimer[h]
		if f.phase != reporting {
			continue
		}
		if w.mono >= f.until || w.mono >= f.askedAt+reportAtLeast && l.over(f) {
			l.settled(f)
			continue
		}
		l.tellLeader(f)
	}
}

// over reports that the lease is not the active lease's any more, as far as this replica knows. One that is gone, or was made anew and is not as far as the
// lease, knows nothing: then a leader says so. A lease that was never seen applied had no call, and has been given back often enough.
func (l *scheduler) over(f *activeLease) bool {
	t := l.group.table
	if l.group.raft == nil || t.fence < f.fence {
		return f.fence == 0
	}
	d := t.Due(f.handle)
	return !t.Live(f.handle, f.seq) || d.State != timer.Leased || d.Holder != byCall || !l.granted(f, &d)
}

func (l *scheduler) tellLeader(f *activeLease) {
	g := l.group
	to := g.leaderNode()
	if to == 0 && len(g.row.Members) > 0 { // a replica that is out, or was taken out while it was cut off, hears of no leader
		l.leases.reported++
		to = g.row.Members[l.leases.reported%len(g.row.Members)].Node
	}
	if to == 0 || to == g.w.host.cfg.Node {
		return
	}
	o := g.w.open(to, reportMessage, g.id)
	body := len(o.frame)
	o.frame = appendReport(o.frame, uint64(g.w.host.cfg.Incarnation), f)
	o.close(g.w, body)
}

// leaderNode is the node that leads the group as far as this one knows; 0: none.
func (g *group) leaderNode() uint64 {
	if g.raft == nil {
		return 0
	}
	return nodeOf(g.raft.BasicStatus().Lead)
}

// Bits of a report.
const (
	reportNotSent = 1 << iota
	reportRefused

	reportBits = 1<<iota - 1
)

func appendReport(b []byte, owner uint64, f *activeLease) []byte {
	a := &f.attempt
	var bits byte
	if a.NotSent {
		bits |= reportNotSent
	}
	if a.Refused {
		bits |= reportRefused
	}
	b = append(b, bits)
	for _, v := range [...]uint64{owner, uint64(f.handle), f.seq, f.fence, uint64(f.rev), uint64(a.Status)} {
		b = binary.AppendUvarint(b, v)
	}
	for _, v := range [...]int64{a.RetryAfterMs, a.StartedMs, a.EndedMs} {
		b = binary.AppendVarint(b, v)
	}
	return appendBlock(b, cut(a.Err, maxErr))
}

// hearReport takes a former leader's word, if the lease it is about is the one that the table has. If that lease is over, it says so.
func (g *group) hearReport(from uint64, body []byte) {
	if g.scheduler == nil || !g.serving || len(body) == 0 || body[0]&^reportBits != 0 {
		return
	}
	r := reader{b: body[1:]}
	owner, h, seq, fence, rev := Incarnation(r.uvarint()), timer.Handle(r.number(1<<32-1, "handle")), r.uvarint(), r.uvarint(), uint32(r.uvarint())
	a := Attempt{NotSent: body[0]&reportNotSent != 0, Refused: body[0]&reportRefused != 0, Status: int(r.number(1<<16-1, "status"))}
	a.RetryAfterMs, a.StartedMs, a.EndedMs = r.varint(), r.varint(), r.varint()
	a.Err = string(r.block(maxErr, "error text"))
	if r.err() != nil {
		return
	}
	a.endBy(g.w.nowMs, false)
	l := g.scheduler
	d := g.table.Due(h)
	live := g.table.Live(h, seq) && d.State == timer.Leased && d.Holder == byCall
	if fence != 0 && fence <= g.table.fence && !(live && d.Fence == fence) {
		g.tellOver(from, owner, h, fence)
		return
	}
	if !live || !l.canJudge(h, &d) || l.isActive(h, &d) || g.table.leaseOwner(d.Fence) != owner || fence != d.Fence && !(fence == 0 && a.NotSent && d.Rev == rev+1) {
		return
	}
	out := l.judge(h, &d, &a, l.random.Float64())
	l.out.outcomes = append(l.out.outcomes, outcomeItem{out, nil})
	if d.Topic != canaryTopic && !a.NotSent {
		g.w.fired(d.Topic, &out)
	}
	g.w.touch(g)
}

// tellOver answers a report on a lease that the table has seen come and go. No lease comes again, so this is true whoever leads by now.
func (g *group) tellOver(to uint64, owner Incarnation, h timer.Handle, fence uint64) {
	o := g.w.open(to, overMessage, g.id)
	body := len(o.frame)
	for _, v := range [...]uint64{uint64(owner), uint64(h), fence} {
		o.frame = binary.AppendUvarint(o.frame, v)
	}
	o.close(g.w, body)
}

// hearOver ends a report. It is what ends those of a process whose replica is gone: it cannot see for itself.
func (g *group) hearOver(body []byte) {
	r := reader{b: body}
	owner, h, fence := Incarnation(r.uvarint()), timer.Handle(r.number(1<<32-1, "handle")), r.uvarint()
	if g.scheduler == nil || r.close() != nil || owner != g.w.host.cfg.Incarnation {
		return
	}
	if f := g.scheduler.leases.byTimer[h]; f != nil && f.phase == reporting && f.fence == fence {
		g.scheduler.settled(f)
	}
}
