package shard

import (
	"time"

	"carillon/timer"
)

// hasZone says whether the times of a timer can be found now: it is no series by the calendar, or its zone was read. Else it is being read.
func (l *scheduler) hasZone(h timer.Handle, d *Due) bool {
	if !d.Series {
		return true
	}
	name, ok := l.table.zone(h)
	if !ok {
		return true
	}
	zones := l.cfg.zones
	if zones.Find(name) != nil {
		return true
	}
	if zones.Wanted(name, l.now.Mono) {
		l.env.background(func() {
			if err := zones.Read(name); err != nil {
				l.env.zoneUnread(name, err)
			}
		})
	}
	return false
}

// zoneWait is after what a timer is looked at again whose zone is being read. It is less than minLookAhead: nothing is late for it.
const zoneWait = 5 * time.Millisecond
