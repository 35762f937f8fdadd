package shard

import (
	"fmt"
	"io"

	"carillon/shard/table"
	"carillon/timer"
)

// readState reads a snapshot's state and checks its hash: a *Table, or what the meta group's
// machine makes of it. It changes nothing, and may run beside the workers.
func (h *Host) readState(r io.Reader, id timer.ShardID, hash uint64) (state any, err error) {
	var has uint64
	if id == Meta {
		state, has, err = h.cfg.Machine.Read(r)
		if hash == 0 { // it was written by a build that did not know its hash
			hash = has
		}
	} else {
		var tbl *table.Table
		tbl, has, err = table.LoadAt(id, r, table.HashVersionOf(h.cfg.Level))
		state = tbl
	}
	if err != nil {
		return nil, err
	}
	if has != hash {
		return nil, fmt.Errorf("state hash %016x, expected %016x", has, hash)
	}
	return state, nil
}

// replaceState makes what readState returned the group's state.
func (g *group) replaceState(state any) {
	if g.meta != nil {
		g.meta.machine.Replace(state)
		return
	}
	g.setTable(state.(*table.Table))
}
