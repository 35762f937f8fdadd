package shard

import (
	"fmt"
	"io"

	"carillon/shard/table"
	"carillon/timer"
)

// readState reads a snapshot's state and checks its hash. The state is a *Table, or the result of
// Machine.Read for the meta group. It may run concurrently with the workers.
func (h *Host) readState(r io.Reader, id timer.ShardID, hash uint64) (state any, err error) {
	var has uint64
	if id == Meta {
		state, has, err = h.cfg.Machine.Read(r)
	} else {
		var tbl *table.Table
		if tbl, err = table.Load(id, r); err == nil {
			state, has = tbl, tbl.Hash()
		}
	}
	if err != nil {
		return nil, err
	}
	if has != hash {
		return nil, fmt.Errorf("state hash %016x, expected %016x", has, hash)
	}
	return state, nil
}

// replaceState makes a result of readState the group's state.
func (g *group) replaceState(state any) {
	if g.meta != nil {
		g.meta.machine.Replace(state)
		return
	}
	g.setTable(state.(*table.Table))
}
