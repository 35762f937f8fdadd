package shard

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
)

// raftLogger writes raft's log lines to slog. Raft's Info becomes Debug, because raft logs every
// step of each shard's elections.
type raftLogger struct {
	log  *slog.Logger
	host *Host
}

// replicaID matches a replica in raft's log lines.
var replicaID = regexp.MustCompile(`\b[0-9a-f]{7,16}\b`)

// named replaces the ids of replicas with the names of their nodes.
func (l raftLogger) named(text string) string {
	return replicaID.ReplaceAllStringFunc(text, func(hex string) string {
		id, err := strconv.ParseUint(hex, 16, 64)
		if err != nil || l.host.cfg.NodeName == nil {
			return hex
		}
		return cmp.Or(l.host.cfg.NodeName(nodeOf(id)), hex)
	})
}

// nodeName returns the name of a node for people, or its id if the name is not known.
func (h *Host) nodeName(node uint64) string {
	name := ""
	if h.cfg.NodeName != nil {
		name = h.cfg.NodeName(node)
	}
	return cmp.Or(name, fmt.Sprintf("%010x", node))
}

func (l raftLogger) Debug(v ...any)                 { l.log.Debug(fmt.Sprint(v...)) }
func (l raftLogger) Debugf(format string, v ...any) {}
func (l raftLogger) Info(v ...any)                  { l.log.Debug(fmt.Sprint(v...)) }

// Infof is called at every step of an election, so it formats only lines that are logged.
func (l raftLogger) Infof(format string, v ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug(l.named(fmt.Sprintf(format, v...)))
	}
}
func (l raftLogger) Warning(v ...any) { l.log.Warn(fmt.Sprint(v...)) }
func (l raftLogger) Warningf(format string, v ...any) {
	l.log.Warn(l.named(fmt.Sprintf(format, v...)))
}
func (l raftLogger) Error(v ...any)                 { l.log.Error(fmt.Sprint(v...)) }
func (l raftLogger) Errorf(format string, v ...any) { l.log.Error(l.named(fmt.Sprintf(format, v...))) }
func (l raftLogger) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (l raftLogger) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLogger) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
