package feed

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"carillon/transport/api/backend"
)

// Stats counts the work of each node of the cluster in the last minute. A node that does not answer
// is listed with the reason.
func (f *Feed) Stats(ctx context.Context) *backend.ClusterStats {
	all := &backend.ClusterStats{}
	heard := map[uint64]bool{f.cfg.Self: true}
	f.each(ctx, methodStats, nil, f.serveStats, func(node uint64, answer []byte, err error) {
		heard[node] = true
		s := backend.NodeStats{}
		if err == nil {
			err = json.Unmarshal(answer, &s)
		}
		if s.Name = f.cfg.Node; node != 0 {
			s.Name = f.cfg.Name(node)
		}
		if err != nil {
			s.Error = "no answer: " + err.Error()
		}
		all.Nodes = append(all.Nodes, s)
	})
	for _, node := range f.cfg.Members() {
		if !heard[node] {
			all.Nodes = append(all.Nodes, backend.NodeStats{Name: f.cfg.Name(node), Error: errDown.Error()})
		}
	}
	slices.SortFunc(all.Nodes, func(a, b backend.NodeStats) int { return strings.Compare(a.Name, b.Name) })
	late := make([]int64, latenessSteps+1)
	for i := range all.Nodes {
		n := &all.Nodes[i]
		n.Lateness = percentiles(n.Late)
		for k := range min(len(late), len(n.Late)) {
			late[k] += n.Late[k]
		}
	}
	all.Lateness = percentiles(late)
	return all
}

var errDown = errors.New("the node is down, or cannot be reached")

func (f *Feed) serveStats() ([]byte, error) {
	h := f.host.Stats()
	return json.Marshal(&backend.NodeStats{
		Minute: f.cfg.Rates.Minute(), Scheduled: h.Scheduled, Leased: h.Leased, Dead: h.Dead, Overdue: h.Overdue, Leads: h.Leads,
		Backup: f.cfg.Backup(),
	})
}
