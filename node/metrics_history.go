package node

import "github.com/prometheus/client_golang/prometheus"

// pastGauges are read from the history when somebody scrapes.
type pastGauges struct{ past func() *historyAdapter }

var (
	historyRecordsDesc = prometheus.NewDesc("carillon_history_records_total", "Ends and attempts written to the history.", nil, nil)
	historyDroppedDesc = prometheus.NewDesc("carillon_history_dropped_total",
		"Ends and attempts that the history left out: too many at once, the disk failed or is almost full.", nil, nil)
	historyDamagedDesc = prometheus.NewDesc("carillon_history_damaged_total", "Places in the history's files that could not be read.", nil, nil)
	historyBytesDesc   = prometheus.NewDesc("carillon_history_bytes", "Size of the history's files.", nil, nil)
	historyFilesDesc   = prometheus.NewDesc("carillon_history_files", "Number of the history's files.", nil, nil)
)

// Describe implements prometheus.Collector.
func (g pastGauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{historyRecordsDesc, historyDroppedDesc, historyDamagedDesc, historyBytesDesc, historyFilesDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g pastGauges) Collect(ch chan<- prometheus.Metric) {
	h := g.past()
	if h.store == nil {
		return
	}
	s := h.store.Stats()
	ch <- prometheus.MustNewConstMetric(historyRecordsDesc, prometheus.CounterValue, float64(s.Recorded))
	ch <- prometheus.MustNewConstMetric(historyDroppedDesc, prometheus.CounterValue, float64(s.Dropped))
	ch <- prometheus.MustNewConstMetric(historyDamagedDesc, prometheus.CounterValue, float64(s.Damaged))
	ch <- prometheus.MustNewConstMetric(historyBytesDesc, prometheus.GaugeValue, float64(s.Bytes))
	ch <- prometheus.MustNewConstMetric(historyFilesDesc, prometheus.GaugeValue, float64(s.Files))
}
