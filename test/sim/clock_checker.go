package sim

import (
	"time"

	"carillon/internal/clocks"
)

const clockSaveEach = time.Second

// trustsNobody sets up the process's clock keeper, which trusts no clock yet.
func (n *node) trustsNobody() {
	n.keeper = clocks.NewKeeper(clocks.Config{Source: &n.clock, Confirm: true, Saved: n.saved})
	if n.saved == nil {
		n.bootedAt = n.w.now // without saved state it knows no more than after a boot
	} else {
		n.trustedLead = time.Duration(n.saved.OffsetUs-epochMs*1000) * time.Microsecond
	}
	n.every(clockSaveEach, func() {
		if now := n.keeper.State().Saved; now != nil {
			n.saved = now
		}
	})
}

// believes is the offset between the wall clock that the process uses and its boot clock, in ms.
func (n *node) believes() int64 {
	m := n.keeper.Look()
	return m.WallMs - m.Mono.Milliseconds()
}
