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
	name, ok := l.group.table.zone(h)
	if !ok {
		return true
	}
	host := l.group.w.host
	if host.zones.Find(name) != nil {
		return true
	}
	if host.zones.Wanted(name, l.group.w.mono) {
		host.inBackground(func() {
			if err := host.zones.Read(name); err != nil {
				host.cfg.Logger.Error("a time zone cannot be read; its series wait, and it is tried again every minute", "zone", name, "error", err)
			}
		})
	}
	return false
}

// zoneWait is after what a timer is looked at again whose zone is being read. It is less than minLookAhead: nothing is late for it.
const zoneWait = 5 * time.Millisecond
