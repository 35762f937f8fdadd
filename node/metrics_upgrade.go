package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"carillon/ring"
)

// upgrade shows which feature level the cluster uses, and whether an upgrade waits for an operator.
func (m *metrics) upgrade(now func() ring.Upgrade) {
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "carillon_feature_level", Help: "Feature level that the cluster uses."},
			func() float64 { return float64(now().Level) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "carillon_upgrade_waits", Help: "1 while all nodes understand a higher feature level and nobody has finalized the upgrade.",
		}, func() float64 {
			if u := now(); u.Waits() {
				return 1
			}
			return 0
		}))
}
