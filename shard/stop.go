package shard

import "math"

// stop ends a group whose log this build cannot continue: the next entry is of a newer release, or
// malformed. The replica neither votes nor acknowledges, and the others go on without it. Its files
// stay as they are, so that a build that can read them can go on from there. The node's other
// groups are not affected, not even at a start.
func (g *group) stop(why error) {
	g.w.host.cfg.Logger.Error("a replica is stopped: this release cannot go on with its log. Nothing of it is lost: start the release that wrote it",
		"shard", uint32(g.id), "why", why)
	g.stopped = why
	g.stepDown()
	g.refuseAll()
	if run := g.w.snapshot; run != nil && run.group == g {
		run.abort()
	}
	g.raft, g.wrong.why, g.snapshots.incoming = nil, nil, nil
	g.turn.wakeMs = math.MaxInt64
	g.publish()
}
