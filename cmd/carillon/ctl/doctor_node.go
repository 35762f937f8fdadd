package ctl

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
	"carillon/node/limits"
)

// Bounds of a node's resources.
const (
	fewFiles   = 65_536  // open files; see docs/cluster.md
	littleDisk = 2 << 30 // free bytes
	mostFiles  = 0.8     // of the limit
)

// node asks a node for the state that only it knows.
func (f *findings) node(ctl *Command, n *client.Node, there map[string]bool) {
	if n.HTTP == "" {
		return
	}
	if _, err := ctl.at(n, "/readyz"); err != nil {
		if hangs(n, err) {
			f.add(wrong, n.Name, endHanging+", and start it again", n.HTTP)
			return
		}
		f.add(wrong, n.Name, "is not ready, or cannot be asked from here: %v", err)
		if !answered(err) {
			return
		}
		f.cutLinks(ctl, n, there)
		f.unready(ctl, n)
		return
	}
	body, err := ctl.at(n, "/metrics")
	if p, refused := errors.AsType[*client.Problem](err); refused && (p.Status == http.StatusForbidden || p.Status == http.StatusUnauthorized) {
		f.add(seeTo, n.Name, "disk and open files are not shown to this token (%d %s): they come from /metrics, for which it needs "+
			"the scopes read and cluster", p.Status, p.Code)
		return
	}
	if err != nil {
		f.add(seeTo, n.Name, "disk and open files are not known: %v", err)
		return
	}
	m := readMetrics(body)
	f.locked(m)
	f.waiting(n.Name, m)
	free, low := m["carillon_disk_free_bytes"], m["carillon_disk_low_bytes"]
	switch {
	case free <= low:
		f.add(wrong, n.Name, "refuses adds: %s free on its disk, no more than the %s below which it does: make room, but not in the data directory", size(free), size(low))
	case free < littleDisk:
		f.add(seeTo, n.Name, "%s free on its disk; below %s it refuses adds", size(free), size(low))
	default:
		f.add(well, n.Name, "%s free on its disk", size(free))
	}
	f.memory(n.Name, m)
	f.faults(n.Name, m)
	f.certificates(n.Name, m)
	f.backups(n.Name, m)
	open, most := m["process_open_fds"], m["process_max_fds"]
	switch {
	case most == 0: // not known on this system
	case open > mostFiles*most:
		f.add(wrong, n.Name, "%.0f of %.0f open files are in use; raise the limit (LimitNOFILE=)", open, most)
	case most < fewFiles:
		f.add(seeTo, n.Name, "may open %.0f files; allow at least %d (LimitNOFILE=)", most, fewFiles)
	default:
		f.add(well, n.Name, "%.0f of %.0f open files", open, most)
	}
}

// unready looks for what keeps a node that answers from being ready, or from the others.
func (f *findings) unready(ctl *Command, n *client.Node) {
	body, err := ctl.at(n, "/metrics")
	if err != nil {
		return
	}
	m := readMetrics(body)
	f.locked(m)
	f.certificates(n.Name, m)
}

// cutLinks names nodes that a node does not hear, though they are there.
func (f *findings) cutLinks(ctl *Command, n *client.Node, there map[string]bool) {
	seen, err := ctl.seenBy(n)
	if err != nil {
		return
	}
	for i := range seen.Nodes {
		if o := &seen.Nodes[i]; there[o.Name] && (o.State == client.NodeDown || o.State == client.NodeSuspect) {
			f.add(wrong, n.Name, "does not hear %s, which others hear: %s", o.Name, repairNetwork)
		}
	}
}

// shortMemory is the part, of the memory above which adds are refused, that is worth a word.
const shortMemory = 0.9

// memory looks at how near a node is to refusing adds.
func (f *findings) memory(node string, m map[string]float64) {
	needed, limit := m["carillon_memory_needed_bytes"], m["carillon_memory_limit_bytes"]
	mark := float64(limits.Memory{Bytes: int64(limit)}.Mark())
	switch {
	case limit == 0: // none is known
	case needed >= mark:
		f.add(wrong, node, "refuses adds: it needs %s of memory, and takes none beyond %s of the %s that it may use: give it more memory, or remove timers",
			size(needed), size(mark), size(limit))
	case needed > shortMemory*mark:
		f.add(seeTo, node, "needs %s of memory; beyond %s it refuses adds", size(needed), size(mark))
	default:
		f.add(well, node, "needs %s of memory; beyond %s it refuses adds", size(needed), size(mark))
	}
}

// faults looks at what a node has found wrong with its replicas and its disk.
func (f *findings) faults(node string, m map[string]float64) {
	if n := int64(m["carillon_replica_faults"]); n > 0 {
		f.add(wrong, node, "%s; its log says which and why", terminal.Many(n, "replica is stopped or differs from the others", "replicas are stopped or differ from the others"))
	}
	if n := int64(m["carillon_full_shards"]); n > 0 {
		f.add(wrong, node, fullShards, terminal.Many(n, "shard is full and refuses", "shards are full and refuse"))
	}
	if m["carillon_damaged_folders"] > 0 {
		f.add(seeTo, node, "its disk has damaged the log: check it, then delete the folders damaged-… in its data directory")
	}
}

// locked lists the topics whose secrets a node cannot open.
func (f *findings) locked(m map[string]float64) {
	for _, series := range slices.Sorted(maps.Keys(m)) {
		rest, found := strings.CutPrefix(series, `carillon_topic_locked{topic="`)
		if name := strings.TrimSuffix(rest, `"}`); found {
			f.add(wrong, "topic "+name, "its calls wait for a secrets key that a node lacks: put the key back, or set new secrets (carillon ctl topics rotate %s, then --finish) and headers", name)
		}
	}
}

// stuck has the causes for which due timers wait that mostly do not end by themselves, each with
// the remedy.
var stuck = []struct {
	cause     client.WaitCause
	grade     grade
	one, more string // of one timer, of several
}{
	{client.WaitNoCallback, wrong, "has no URL, nor has its topic: carillon ctl topics set TOPIC callback.url=URL",
		"have no URL, nor have their topics: carillon ctl topics set TOPIC callback.url=URL"},
	{client.WaitRefused, wrong, "was refused its receiver's address: allow it (--callback-allow), or change the URL",
		"were refused their receivers' addresses: allow them (--callback-allow), or change the URLs"},
	{client.WaitZone, wrong, "waits for a time zone that the node's release does not know: start the newer release",
		"wait for time zones that the node's release does not know: start the newer release"},
	{client.WaitPaused, seeTo, "waits: its topic is paused; carillon ctl topics resume TOPIC", "wait: their topics are paused; carillon ctl topics resume TOPIC"},
	// A leader that may not start calls is a problem that other findings name.
	{client.WaitLeader, seeTo, "waits for its shard's leader; a burst passes by itself, else see the leader's clock, and the other nodes",
		"wait for their shard's leader; a burst passes by itself, else see the leader's clock, and the other nodes"},
	{client.WaitConsumer, seeTo, "waits to be pulled: if nobody does, start consumers; carillon ctl pull TOPIC takes one by hand",
		"wait to be pulled: if nobody does, start consumers; carillon ctl pull TOPIC takes one by hand"},
}

// pullLate is how long due timers may wait for consumers, who come when they have time.
const pullLate = 60 // s

// waiting adds, for each of these causes, how many due timers wait for it in the shards that a node
// leads.
func (f *findings) waiting(node string, m map[string]float64) {
	for _, s := range stuck {
		if n := m[`carillon_waiting{reason="`+string(s.cause)+`"}`]; n > 0 && (s.cause != client.WaitConsumer || oldestOverdue(m) > pullLate) {
			f.add(s.grade, node, "%s; carillon ctl topics list shows where", terminal.Many(int64(n), "timer "+s.one, "timers "+s.more))
		}
	}
}

// oldestOverdue is for how long, in seconds, a timer of any topic has been due.
func oldestOverdue(m map[string]float64) (oldest float64) {
	for series, seconds := range m {
		if strings.HasPrefix(series, "carillon_topic_oldest_overdue_seconds{") {
			oldest = max(oldest, seconds)
		}
	}
	return oldest
}

// certificateSoon is how long before its end a certificate is worth a word.
const certificateSoon = 14 * 24 * time.Hour

// certificates lists those of a node's files that have ended, or will soon.
func (f *findings) certificates(node string, m map[string]float64) {
	for _, of := range []string{"http_cert", "http_client_ca", "peer_cert", "peer_ca"} {
		at, some := m[`carillon_certificate_not_after_timestamp_seconds{of="`+of+`"}`]
		end, flag := time.Unix(int64(at), 0), "--"+strings.ReplaceAll(of, "_", "-")
		switch left := time.Until(end); {
		case !some || left > certificateSoon:
		case left <= 0:
			f.add(wrong, node, "a certificate of %s has ended, %s: replace the file, and send SIGHUP", flag, end.Format(time.RFC3339))
		default:
			f.add(seeTo, node, "a certificate of %s ends %s: replace the file, and send SIGHUP", flag, end.Format(time.RFC3339))
		}
	}
}

// backupLate is for how long a scheduled backup may be due: a large one takes its time.
const backupLate = time.Hour

// backups looks at the scheduled backups, on the node that makes them.
func (f *findings) backups(node string, m map[string]float64) {
	made := "none is known"
	at, some := m["carillon_backup_last_success_timestamp_seconds"]
	if some {
		made = "the last one was made " + time.Unix(int64(at), 0).Format(time.RFC3339)
	}
	switch overdue := time.Duration(m["carillon_backup_overdue_seconds"]) * time.Second; {
	case overdue > backupLate:
		f.add(wrong, "backups", "one has been due for %v and is not made; the log of %s says why; %s", overdue, node, made)
	case overdue > 0:
		f.add(seeTo, "backups", "one has been due for %v; it is being made, or tried again: see the log of %s; %s", overdue, node, made)
	case some:
		f.add(well, "backups", "%s, by %s", made, node)
	}
}

// readMetrics reads the series, each by its name and labels.
func readMetrics(body []byte) map[string]float64 {
	m := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		var name string
		var value float64
		if n, err := fmt.Sscan(line, &name, &value); n == 2 && err == nil && !math.IsNaN(value) {
			m[name] = value
		}
	}
	return m
}

// size is a number of bytes for people.
func size(bytes float64) string {
	for _, u := range []struct {
		name  string
		bytes float64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}} {
		if bytes >= u.bytes {
			return fmt.Sprintf("%.1f %s", bytes/u.bytes, u.name)
		}
	}
	return fmt.Sprintf("%.0f KiB", bytes/1024)
}
