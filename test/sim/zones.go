package sim

import (
	"carillon/timer"
	"carillon/timer/recurrence"
)

// lacking are the zones of older releases: each lacks one that timetables are in.
var lacking = [...]*recurrence.Zones{
	recurrence.Without("Europe/Berlin"), recurrence.Without("America/New_York"), recurrence.Without("Australia/Lord_Howe"),
}

// drawZones draws the time zones that the release of a starting process knows. A series in another
// zone waits while that process leads it.
func (n *node) drawZones() {
	n.zones = recurrence.Release
	if n.w.odds.IntN(2) == 0 {
		n.zones = lacking[n.w.odds.IntN(len(lacking))]
	}
}

// learnZones restarts the processes that lack a zone with a release that has all of them.
func (w *World) learnZones() {
	for _, n := range w.nodes {
		if n.zones == nil || n.zones == recurrence.Release {
			continue
		}
		n.zones = recurrence.Release
		if n.up {
			n.stop(false)
		}
	}
}

// countZoneless counts the moments at which a process leads series in zones that it does not know.
func (w *World) countZoneless() {
	for _, n := range w.nodes {
		if n.host == nil {
			continue
		}
		for id := range w.swarm.shards {
			if n.host.Progress(timer.ShardID(id+1)).InUnknownZones > 0 {
				w.counts.Zoneless++
				return
			}
		}
	}
}
