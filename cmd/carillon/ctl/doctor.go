package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
	"carillon/node/limits"
)

type doctorCmd struct{}

// grade is how bad a finding is; it is the exit code, too.
type grade int

const (
	well grade = iota
	seeTo
	wrong
)

func (g grade) String() string { return [...]string{"ok", "warning", "problem"}[g] }

func (g grade) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// finding is one thing that was looked at.
type finding struct {
	Grade grade  `json:"grade"`
	About string `json:"about"` // a node's name, or the check's
	Text  string `json:"text"`
}

// findings are in the order in which they were looked at.
type findings []finding

func (f *findings) add(g grade, about, format string, args ...any) {
	*f = append(*f, finding{g, about, fmt.Sprintf(format, args...)})
}

func (f findings) worst() (g grade) {
	for _, one := range f {
		g = max(g, one.Grade)
	}
	return g
}

func (d *doctorCmd) Run(ctl *Command, term *terminal.Terminal) error {
	cluster, err := within(ctl, false, ctl.client.Cluster)
	if err != nil {
		return err
	}
	f := findings{}
	f.nodes(cluster)
	f.shards(cluster)
	f.releases(cluster)
	f.margin(cluster)
	if cluster.Scopes != nil && !slices.Contains(cluster.Scopes, "cluster") {
		f.add(seeTo, "topics", "those that wait for a secrets key are not shown to this token, which lacks the scope cluster")
	}
	if cluster.Scopes == nil || slices.Contains(cluster.Scopes, "cluster") {
		f.receivers(ctl)
	}
	for i := range cluster.Nodes {
		if n := &cluster.Nodes[i]; n.State != client.NodeDown && n.State != client.NodeLeft {
			f.node(ctl, n)
		}
	}
	if err := f.print(ctl, term.Out); err != nil {
		return err
	}
	if worst := f.worst(); worst > well {
		return terminal.QuietExit(worst)
	}
	return nil
}

func (f findings) print(ctl *Command, out io.Writer) error {
	if ctl.JSON {
		o := &object{}
		o.set("grade", f.worst())
		o.set("findings", f)
		return printJSON(out, o.bytes())
	}
	t := newTable(out, "GRADE", "ABOUT", "FINDING")
	for _, one := range f {
		t.row(one.Grade.String(), one.About, one.Text)
	}
	return t.w.Flush()
}

// clockSeeTo is how far a clock may be from the cluster's without a word.
const clockSeeTo = 250 // ms

// nodes looks at the answering node's view of each.
func (f *findings) nodes(c *client.Cluster) {
	for i := range c.Nodes {
		n := &c.Nodes[i]
		switch n.State {
		case client.NodeDown:
			f.down(c, n.Name)
		case client.NodeSuspect:
			f.add(seeTo, n.Name, "is suspect: it was last heard %s", lastHeard(n))
		case client.NodeDraining, client.NodeDrained:
			f.add(seeTo, n.Name, "is %s; carillon ctl resume %s takes that back", n.State, n.Name)
		default:
			f.add(well, n.Name, "is %s", n.State)
		}
		if n.Unfit != "" {
			f.add(wrong, n.Name, "should not lead: %s", n.Unfit)
		}
		switch off := n.ClockOffsetMs; {
		case off == nil && n.State == client.NodeAlive:
			f.add(seeTo, n.Name, "its clock is not known")
		case off != nil && (*off > clockSeeTo || *off < -clockSeeTo):
			f.add(seeTo, n.Name, "its clock is %+d ms from the cluster's; check its time service", *off)
		}
	}
}

// down adds what to do about a node that is down. It can be replaced only while all its shards have
// a majority: what the lost one has may be nowhere else.
func (f *findings) down(c *client.Cluster, name string) {
	stopped := 0
	for i := range c.Shards {
		if s := &c.Shards[i]; s.State == client.ShardNoQuorum && slices.Contains(s.Replicas, name) {
			stopped++
		}
	}
	if stopped == 0 {
		f.add(wrong, name, "is down; start it, or replace it (carillon ctl remove %s)", name)
		return
	}
	f.add(wrong, name, "is down; start it with its data directory: %s no majority without it", terminal.Many(int64(stopped), "shard has", "shards have"))
}

// mostListed is how many shards without a majority are listed.
const mostListed = 16

// noMajority lists the shards that have lost theirs, and the nodes that would bring it back.
func (f *findings) noMajority(c *client.Cluster) {
	var shards, nodes []string
	there := present(c)
	for i := range c.Shards {
		s := &c.Shards[i]
		if s.State != client.ShardNoQuorum {
			continue
		}
		shards = append(shards, strconv.Itoa(s.Number))
		for _, name := range s.Replicas {
			if !there[name] && !slices.Contains(nodes, name) {
				nodes = append(nodes, name)
			}
		}
	}
	if more := len(shards) - mostListed; more > 0 {
		shards = append(shards[:mostListed], fmt.Sprintf("%d more (carillon ctl cluster)", more))
	}
	slices.Sort(nodes)
	f.add(wrong, "shards", "no majority: %s; these answer 503 and fire nothing until enough of %s are started, and then fire what is late; "+
		"only if their data is lost for good, restore a backup into an empty directory (docs/backup.md)", strings.Join(shards, ", "), strings.Join(nodes, ", "))
}

// shards looks at how they are, and how many replicas they have.
func (f *findings) shards(c *client.Cluster) {
	if len(c.Shards) == 0 {
		f.add(wrong, "shards", "there are none: the cluster is not founded yet")
		return
	}
	count := map[client.ShardState]int{}
	few, each := 0, min(c.Replicas, holders(c))
	for i := range c.Shards {
		count[c.Shards[i].State]++
		if len(c.Shards[i].Replicas) < each {
			few++
		}
	}
	g := well
	switch {
	case count[client.ShardNoQuorum] > 0:
		g = wrong
	case count[client.ShardDegraded] > 0:
		g = seeTo
	}
	f.add(g, "shards", "%s", summary(c.Shards))
	if g == wrong {
		f.noMajority(c)
	}
	if r := c.Resharding; r != nil {
		g = well
		switch r.WaitsFor {
		case "majority":
			g = wrong
		case "disk":
			g = seeTo
		}
		f.add(g, "shards", "resharding from %d to %d: %s", r.From, r.To, printable(growth(r)))
	}
	if few > 0 {
		f.add(seeTo, "shards", "%d have fewer replicas than the %d that they should have", few, each)
	}
}

// releases looks at the nodes' releases.
func (f *findings) releases(c *client.Cluster) {
	var versions []string
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Version != "" && !slices.Contains(versions, n.Version) {
			versions = append(versions, n.Version)
		}
	}
	slices.Sort(versions)
	if len(versions) > 1 {
		f.add(seeTo, "releases", "the nodes run %s: finish the upgrade, or take it back", strings.Join(versions, " and "))
	} else {
		f.add(well, "releases", "all nodes run %s", strings.Join(versions, ""))
	}
	if c.Upgrade != nil {
		f.add(seeTo, "releases", "%s", levelLine(c))
	}
}

// present are the nodes that are up for all that is known.
func present(c *client.Cluster) map[string]bool {
	there := map[string]bool{}
	for i := range c.Nodes {
		switch c.Nodes[i].State {
		case client.NodeSuspect, client.NodeDown, client.NodeLeft:
		default:
			there[c.Nodes[i].Name] = true
		}
	}
	return there
}

// margin lists for each node the shards that would stop if it went now.
func (f *findings) margin(c *client.Cluster) {
	there, stand := present(c), 0
	for i := range c.Shards {
		if c.Shards[i].State == client.ShardNoQuorum {
			stand++
		}
	}
	for i := range c.Nodes {
		name := c.Nodes[i].Name
		if !there[name] {
			continue
		}
		stopped := 0
		for k := range c.Shards {
			if s := &c.Shards[k]; s.State != client.ShardNoQuorum && slices.Contains(s.Replicas, name) && 2*(countIn(s.Replicas, there)-1) <= len(s.Replicas) {
				stopped++
			}
		}
		switch {
		case stopped == 0 && stand > 0:
			f.add(seeTo, "if "+name+" went", "%d of %d shards have no majority now; nothing more would stop", stand, len(c.Shards))
		case stopped == 0:
			f.add(well, "if "+name+" went", "all shards would keep running")
		case len(c.Nodes) == 1:
			f.add(well, "if "+name+" went", "everything would stop: it is the only node")
		default:
			f.add(seeTo, "if "+name+" went", "%d of %d shards would stop until it is back", stopped, len(c.Shards))
		}
	}
}

func countIn(names []string, set map[string]bool) (n int) {
	for _, name := range names {
		if set[name] {
			n++
		}
	}
	return n
}

// Bounds of a node's resources.
const (
	fewFiles   = 65_536  // open files; see docs/cluster.md
	littleDisk = 2 << 30 // free bytes
	mostFiles  = 0.8     // of the limit
)

// node asks a node for the state that only it knows.
func (f *findings) node(ctl *Command, n *client.Node) {
	if n.HTTP == "" {
		return
	}
	if _, err := ctl.at(n, "/readyz"); err != nil {
		f.add(wrong, n.Name, "is not ready, or cannot be asked from here: %v", err)
		if body, err := ctl.at(n, "/metrics"); err == nil {
			f.locked(readMetrics(body))
		}
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
		f.add(wrong, n.Name, "refuses adds: %s free on its disk, no more than the %s below which it does", size(free), size(low))
	case free < littleDisk:
		f.add(seeTo, n.Name, "%s free on its disk; below %s it refuses adds", size(free), size(low))
	default:
		f.add(well, n.Name, "%s free on its disk", size(free))
	}
	f.memory(n.Name, m)
	f.faults(n.Name, m)
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
	if m["carillon_damaged_folders"] > 0 {
		f.add(seeTo, node, "its disk has damaged the log: check it, then delete the folders damaged-… in its data directory")
	}
}

// locked lists the topics whose secrets a node cannot open. All nodes have the same topics, so
// each is listed once.
func (f *findings) locked(m map[string]float64) {
	for _, series := range slices.Sorted(maps.Keys(m)) {
		rest, found := strings.CutPrefix(series, `carillon_topic_locked{topic="`)
		name := strings.TrimSuffix(rest, `"}`)
		if about := "topic " + name; found && !slices.ContainsFunc(*f, func(one finding) bool { return one.About == about }) {
			f.add(wrong, about, "its calls wait for a secrets key that a node lacks: put the key back, or set new secrets (carillon ctl topics rotate %s, then --finish) and headers", name)
		}
	}
}

// stuck is what due timers wait for that mostly does not end by itself, and what to do.
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
	// A leader that may not start calls is a problem that other findings name.
	{client.WaitLeader, seeTo, "waits for its shard's leader; a burst passes by itself, else see the leader's clock, and the other nodes",
		"wait for their shard's leader; a burst passes by itself, else see the leader's clock, and the other nodes"},
}

// waiting lists the due timers of the shards that a node leads wait for what does not come by
// itself.
func (f *findings) waiting(node string, m map[string]float64) {
	for _, s := range stuck {
		if n := m[`carillon_waiting{reason="`+string(s.cause)+`"}`]; n > 0 {
			f.add(s.grade, node, "%s; carillon ctl topics list shows where", terminal.Many(int64(n), "timer "+s.one, "timers "+s.more))
		}
	}
}

const (
	failedCalls   = 3 // in a row, after which a receiver is listed
	mostReceivers = 5 // that have a line each
)

// receivers lists those whose calls are paused, or all fail. They are others' trouble: a warning.
func (f *findings) receivers(ctl *Command) {
	ctx, cancel := context.WithTimeout(context.Background(), ctl.Timeout)
	defer cancel()
	more := 0
	for r, err := range ctl.client.Destinations(ctx, "") {
		if err != nil {
			f.add(seeTo, "receivers", "are not known: %v", err)
			return
		}
		open := r.State == "open"
		switch {
		case !open && r.Failures < failedCalls:
		case more >= mostReceivers:
			more++
		case open:
			more++
			f.add(seeTo, "receiver", "%s is unhealthy: its calls are paused, %s for it; last error: %s", r.Destination, terminal.Many(int64(r.Waiting), "timer waits", "timers wait"), r.LastError)
		default:
			more++
			f.add(seeTo, "receiver", "%s: the last %d calls failed (%s)", r.Destination, r.Failures, r.LastError)
		}
	}
	if more -= mostReceivers; more > 0 {
		f.add(seeTo, "receivers", "%d more are so: carillon ctl destinations", more)
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
