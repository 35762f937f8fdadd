package shard

import (
	"carillon/timer"
)

// admit refuses commands that add to the state while memory or disk is short. Commands that free
// something are admitted.
func (h *Host) admit(g *group, cmd *timer.Command) error {
	if !grows(cmd) {
		return nil
	}
	if h.needed() > h.cfg.MemoryLimit {
		h.refused[RefusedMemory].Add(1)
		return timer.ErrMemory
	}
	if low := g.public.lowDisk.Load(); low != nil {
		h.refused[RefusedLowDisk].Add(1)
		return *low
	}
	return nil
}

// Reasons for which a host refuses a command that adds to its state.
const (
	RefusedMemory = iota
	RefusedLowDisk
	RefusedOverload // too many operations wait

	refusals
)

// Refused returns how many commands that add to the state were refused, by reason.
func (h *Host) Refused() (n [refusals]int64) {
	for i := range n {
		n[i] = h.refused[i].Load()
	}
	return n
}

// grows reports whether a command adds to the state. A Modify does if its patch has a payload or
// headers.
func grows(c *timer.Command) bool {
	switch c.Kind {
	case timer.Add, timer.Put, timer.Redrive, timer.OpenTopic:
		return true
	case timer.Modify:
		return c.Patch != nil && (len(c.Patch.Spec.Payload) > 0 || len(c.Patch.Spec.Callback.Headers) > 0)
	}
	return false
}
