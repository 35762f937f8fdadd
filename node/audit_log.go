package node

import (
	"path/filepath"

	"carillon/internal/audit"
	"carillon/node/metrics"
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

func auditor(log *audit.Log) func(audit.Entry) {
	if log == nil {
		return nil
	}
	return log.Record
}

// showLogs adds to the metrics what the node's log and the audit log have written and lost.
func (n *Node) showLogs(m *metrics.Metrics, trail *audit.Log) {
	m.Gauge("carillon_log_lines_waiting", "Lines of the node's log that wait for its reader.", func() int64 { waiting, _ := n.cfg.LogCounts(); return waiting })
	m.Count("carillon_log_lines_lost_total", "Lines of the node's log that could not be written.", func() int64 { _, lost := n.cfg.LogCounts(); return lost })
	counts := func() (written, lost int64) { return 0, 0 }
	if trail != nil {
		counts = trail.Counts
	}
	m.Count("carillon_audit_entries_total", "Entries of the audit log that were written.", func() int64 { written, _ := counts(); return written })
	m.Count("carillon_audit_lost_total", "Entries of the audit log that could not be written.", func() int64 { _, lost := counts(); return lost })
}
