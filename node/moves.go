package node

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"carillon/node/metrics"
	"carillon/ring"
	"carillon/transport/api/backend"
)

// moves is what moves between nodes and what waits; nil: nothing, or it is not known.
func (c *core) moves(ctx context.Context) *backend.MovesView {
	m := c.member.Moves(ctx)
	v := &backend.MovesView{Bytes: m.Bytes, Repairs: m.UnderWay[ring.Repairs] + m.Waiting[ring.Repairs], AtLimit: c.named(m.Full), WaitsFor: c.named(m.Awaited)}
	for kind := range ring.MoveKinds {
		v.UnderWay += m.UnderWay[kind]
		v.Waiting += m.Waiting[kind]
	}
	if v.UnderWay+v.Waiting == 0 {
		return nil
	}
	return v
}

// named are the names of nodes.
func (c *core) named(ids []uint64) (names []string) {
	for _, id := range ids {
		if n, ok := c.member.State.Node(id); ok {
			names = append(names, n.Name)
		}
	}
	return names
}

func (p *process) showMoves(m *metrics.Metrics) {
	for kind := range ring.MoveKinds {
		for state, of := range map[string]func(*ring.Moves) int{
			"under_way": func(m *ring.Moves) int { return m.UnderWay[kind] },
			"waiting":   func(m *ring.Moves) int { return m.Waiting[kind] },
		} {
			m.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "carillon_moves", Help: "Replicas on their way between nodes, and those that wait, on the node that plans them; 0 on all others.",
				ConstLabels: prometheus.Labels{"kind": kind.String(), "state": state},
			}, func() float64 {
				moves := p.core.Load().member.Planned()
				return float64(of(&moves))
			}))
		}
	}
}
