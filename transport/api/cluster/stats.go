package cluster

import (
	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

// Stats answers with the work of all nodes in the last minute.
func Stats(rq *web.Request) *web.Problem {
	s := rq.Core.Live.Stats(rq.Base)
	var sum backend.NodeStats
	o := web.Object{B: rq.Out()}
	o.List("nodes", len(s.Nodes), func(b []byte, i int) []byte {
		n, node := &s.Nodes[i], web.Object{B: b}
		sum.Add(n)
		node.Text("name", n.Name)
		if n.Error != "" {
			node.Text("error", n.Error)
		} else {
			statsMembers(&node, n)
			backupMembers(&node, n.Backup)
		}
		return node.End()
	})
	sum.Lateness = s.Lateness
	o.Name("total")
	total := web.Object{B: o.B}
	statsMembers(&total, &sum)
	o.B = total.End()
	return rq.JSON(200, o.End())
}

func backupMembers(o *web.Object, s *backend.BackupStats) {
	if s == nil {
		return
	}
	o.Name("backup")
	b := web.Object{B: o.B}
	b.Text("every", s.Every)
	if s.MadeMs != 0 {
		b.B = web.AppendTime(b.B, "last_success", s.MadeMs)
	}
	b.Integer("overdue_ms", s.OverdueMs)
	b.OptText("error", s.Error)
	o.B = b.End()
}

func statsMembers(o *web.Object, s *backend.NodeStats) {
	o.Integer("window_ms", s.WindowMs)
	rate := func(name string, n int64) {
		v := 0.0
		if s.WindowMs > 0 {
			v = float64(n*1000) / float64(s.WindowMs)
		}
		o.Float(name, float64(int64(v*100+0.5))/100)
	}
	rate("adds_per_second", s.Added)
	rate("fired_per_second", s.Succeeded+s.Retried+s.Died)
	o.Integer("added", s.Added)
	o.Integer("changed", s.Changed)
	o.Integer("cancelled", s.Cancelled)
	o.Name("fired")
	f := web.Object{B: o.B}
	f.Integer("success", s.Succeeded)
	f.Integer("retry", s.Retried)
	f.Integer("dead", s.Died)
	o.B = f.End()
	o.Name("lateness_ms")
	l := web.Object{B: o.B}
	l.Integer("count", s.Lateness.Count)
	if s.Lateness.Count > 0 {
		l.Integer("p50", s.Lateness.P50)
		l.Integer("p90", s.Lateness.P90)
		l.Integer("p99", s.Lateness.P99)
		l.Integer("max", s.Lateness.Max)
	}
	o.B = l.End()
	o.Integer("scheduled", s.Scheduled)
	o.Integer("leased", s.Leased)
	o.Integer("dead", s.Dead)
	o.Integer("overdue", s.Overdue)
	o.Integer("leads", int64(s.Leads))
	o.Integers("added_each_second", s.AddedEach)
	o.Integers("fired_each_second", s.FiredEach)
}
