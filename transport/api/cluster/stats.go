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
	o.Objects("nodes", len(s.Nodes), func(o *web.Object, i int) {
		n := &s.Nodes[i]
		sum.Add(n)
		o.Text("name", n.Name)
		if n.Error != "" {
			o.Text("error", n.Error)
		} else {
			statsMembers(o, n)
			backupMembers(o, n.Backup)
		}
	})
	sum.Lateness = s.Lateness
	o.Nest("total", func(o *web.Object) { statsMembers(o, &sum) })
	return rq.JSON(200, o.End())
}

func backupMembers(o *web.Object, s *backend.BackupStats) {
	if s == nil {
		return
	}
	o.Nest("backup", func(o *web.Object) {
		o.Text("every", s.Every)
		o.OptTime("last_success", s.MadeMs)
		o.Integer("overdue_ms", s.OverdueMs)
		o.OptText("error", s.Error)
	})
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
	o.Nest("fired", func(o *web.Object) {
		o.Integer("success", s.Succeeded)
		o.Integer("retry", s.Retried)
		o.Integer("dead", s.Died)
	})
	o.Nest("lateness_ms", func(o *web.Object) {
		o.Integer("count", s.Lateness.Count)
		if s.Lateness.Count > 0 {
			o.Integer("p50", s.Lateness.P50)
			o.Integer("p90", s.Lateness.P90)
			o.Integer("p99", s.Lateness.P99)
			o.Integer("max", s.Lateness.Max)
		}
	})
	o.Integer("scheduled", s.Scheduled)
	o.Integer("leased", s.Leased)
	o.Integer("dead", s.Dead)
	o.Integer("overdue", s.Overdue)
	o.Integer("leads", int64(s.Leads))
	o.Integers("added_each_second", s.AddedEach)
	o.Integers("fired_each_second", s.FiredEach)
}
