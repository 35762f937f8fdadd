package node

import (
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"carillon/internal/audit"
	"carillon/transport/api"
)

// noAudit is the setting that turns the audit log off.
const noAudit = "off"

// auditPath is the file of the audit log, "" when there is none.
func (c Config) auditPath() string {
	switch {
	case c.AuditLog == noAudit, c.AuditLog == "" && c.AuthFile == "":
		return ""
	case c.AuditLog == "":
		return filepath.Join(c.DataDir, "audit.log")
	}
	return c.AuditLog
}

// auditLog is the node's; nil when it keeps none.
func (n *Node) auditLog() *audit.Log {
	path := n.cfg.auditPath()
	if path == "" {
		return nil
	}
	return audit.New(audit.Config{Path: path, Logger: n.cfg.Logger})
}

// auditor has a log record the changes of the API.
func auditor(log *audit.Log) func(api.Change) {
	if log == nil {
		return nil
	}
	return func(c api.Change) { log.Record(audit.Entry(c)) }
}

// lines shows how many lines of the node's log wait, and how many were lost.
func (m *metrics) lines(counts func() (waiting, lost int64)) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "carillon_log_lines_waiting", Help: "Lines of the node's log that wait for its reader."},
		func() float64 { n, _ := counts(); return float64(n) }))
	m.count("carillon_log_lines_lost_total", "Lines of the node's log that could not be written.", func() int64 { _, n := counts(); return n })
}

// audit shows how many entries a log has taken, and how many it has lost; none without a log.
func (m *metrics) audit(log *audit.Log) {
	counts := func() (written, lost int64) { return 0, 0 }
	if log != nil {
		counts = log.Counts
	}
	m.count("carillon_audit_entries_total", "Entries of the audit log that were written.", func() int64 { n, _ := counts(); return n })
	m.count("carillon_audit_lost_total", "Entries of the audit log that could not be written.", func() int64 { _, n := counts(); return n })
}
