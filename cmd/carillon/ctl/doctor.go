package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
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
	f := findings{}
	switch {
	case err != nil:
		f.add(wrong, "cluster", "%v", err)
	case cluster.ID == "":
		f.outside(ctl)
	default:
		f.look(ctl, cluster)
	}
	if err := f.print(ctl, term.Out); err != nil {
		return err
	}
	if worst := f.worst(); worst > well {
		return terminal.QuietExit(worst)
	}
	return nil
}

// outside is all that there is to say of a node that waits for its cluster.
func (f *findings) outside(ctl *Command) {
	why := "it does not say why"
	if _, err := ctl.do(readReady); err != nil {
		why = err.Error()
	}
	f.add(wrong, "cluster", "the node that was asked is in none yet: %s", why)
}

// look looks at a cluster, and at each of its nodes.
func (f *findings) look(ctl *Command, cluster *client.Cluster) {
	at := ctl.reach(cluster)
	f.nodes(cluster, at)
	for _, name := range slices.Sorted(maps.Keys(at.strangers)) {
		f.add(wrong, name, "its address is now that of a node of another cluster, %s: start %s with its own data directory", at.strangers[name], name)
	}
	f.shards(cluster, at.living)
	f.releases(cluster)
	f.margin(cluster)
	if cluster.Scopes != nil && !slices.Contains(cluster.Scopes, "cluster") {
		f.add(seeTo, "topics", "those that wait for a secrets key are not shown to this token, which lacks the scope cluster")
	}
	if cluster.Scopes == nil || slices.Contains(cluster.Scopes, "cluster") {
		f.receivers(ctl)
	}
	f.eachNode(ctl, cluster, at)
}

// eachNode asks the nodes that answer, all at once: each that hangs takes a while. What several of
// them say of a topic is listed once, as all nodes have the same topics.
func (f *findings) eachNode(ctl *Command, cluster *client.Cluster, at reachable) {
	there, of := present(cluster), make([]findings, len(cluster.Nodes))
	var all sync.WaitGroup
	for i := range cluster.Nodes {
		switch n := &cluster.Nodes[i]; {
		case at.living[n.Name]:
			all.Go(func() { of[i].unready(ctl, n) })
		case n.State != client.NodeDown && n.State != client.NodeLeft:
			all.Go(func() { of[i].node(ctl, n, there) })
		}
	}
	all.Wait()
	listed := map[finding]bool{}
	for _, one := range slices.Concat(of...) {
		if !listed[one] {
			listed[one] = true
			*f = append(*f, one)
		}
	}
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

// reachable is what answers from here at the addresses of nodes that are down for the one that was
// asked.
type reachable struct {
	living    map[string]bool   // these nodes
	hanging   map[string]bool   // processes that take connections and do not answer
	strangers map[string]string // nodes of other clusters, whose ids these are
}

func (c *Command) reach(cluster *client.Cluster) reachable {
	var mu sync.Mutex
	var all sync.WaitGroup
	r := reachable{living: map[string]bool{}, hanging: map[string]bool{}, strangers: map[string]string{}}
	for i := range cluster.Nodes {
		if n := &cluster.Nodes[i]; n.State == client.NodeDown && n.HTTP != "" {
			all.Go(func() {
				_, err := c.at(n, "/healthz")
				lives, hangs, seen := answered(err), hangs(n, err), new(client.Cluster)
				if lives {
					seen, _ = c.seenBy(n)
				}
				mu.Lock()
				defer mu.Unlock()
				switch {
				case !lives:
					r.hanging[n.Name] = hangs
				case seen.ID == "" || seen.ID == cluster.ID:
					r.living[n.Name] = true
				default:
					r.strangers[n.Name] = seen.ID
				}
			})
		}
	}
	all.Wait()
	return r
}

// answered is whether a node has answered, be it with a refusal, for what came of asking it.
func answered(err error) bool {
	_, refused := errors.AsType[*client.Problem](err)
	return err == nil || refused
}

// hangs is whether a node's process does: the system takes connections for one that stands still.
func hangs(n *client.Node, err error) bool {
	if !errors.Is(err, errNoAnswer) {
		return false
	}
	conn, err := net.DialTimeout("tcp", n.HTTP, patience)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// nodes looks at the answering node's view of each.
func (f *findings) nodes(c *client.Cluster, at reachable) {
	for i := range c.Nodes {
		n := &c.Nodes[i]
		switch n.State {
		case client.NodeDown:
			f.down(c, n, at)
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

const repairNetwork = "repair the network between the nodes (ports --peer, TCP, and --gossip, TCP and UDP), or give them the same --gossip-key, and certificates of the same --peer-ca; their logs say which"

// endHanging is what to do about a process that hangs, at an address.
const endHanging = "its process takes connections at %s and does not answer: end it (kill -9)"

// down adds what to do about a node that is down. It can be replaced only while all its shards have
// a majority: what the lost one has may be nowhere else.
func (f *findings) down(c *client.Cluster, n *client.Node, at reachable) {
	name := n.Name
	if at.living[name] {
		f.add(wrong, name, "is not heard by the node that was asked, and answers from here: %s", repairNetwork)
		return
	}
	start := "start it"
	if at.hanging[name] {
		start = fmt.Sprintf(endHanging, n.HTTP) + ", and start it again"
	}
	stopped := 0
	for i := range c.Shards {
		if s := &c.Shards[i]; s.State == client.ShardNoQuorum && slices.Contains(s.Replicas, name) {
			stopped++
		}
	}
	if stopped == 0 {
		f.add(wrong, name, "is down; %s, or replace it (carillon ctl remove %s)", start, name)
		return
	}
	f.add(wrong, name, "is down; %s with its data directory: %s no majority without it", start, terminal.Many(int64(stopped), "shard has", "shards have"))
}

// mostListed is how many shards without a majority are listed.
const mostListed = 16

// noMajority lists the shards that have lost theirs, and the nodes that would bring it back.
func (f *findings) noMajority(c *client.Cluster, living map[string]bool) {
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
	if !slices.ContainsFunc(nodes, func(name string) bool { return !living[name] }) {
		f.add(wrong, "shards", "the node that was asked hears no majority of %s; %s may serve them: ask there (--url)", strings.Join(shards, ", "), strings.Join(nodes, ", "))
		return
	}
	f.add(wrong, "shards", "no majority: %s; these answer 503 and fire nothing until enough of %s are started, and then fire what is late; "+
		"only if their data is lost for good, restore a backup into an empty directory (docs/backup.md)", strings.Join(shards, ", "), strings.Join(nodes, ", "))
}

// shards looks at how they are, and how many replicas they have.
func (f *findings) shards(c *client.Cluster, living map[string]bool) {
	if len(c.Shards) == 0 {
		f.add(wrong, "shards", "there are none yet")
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
		f.noMajority(c, living)
	}
	if r := c.Resharding; r != nil {
		g = well
		switch r.WaitsFor {
		case "majority":
			g = wrong
		case "disk", "memory":
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
			f.add(seeTo, "receiver", "%s is unhealthy: its calls are paused, %s for it until a probe succeeds; repair it; last error: %s", r.Destination, terminal.Many(int64(r.Waiting), "timer waits", "timers wait"), r.LastError)
		default:
			more++
			f.add(seeTo, "receiver", "%s: the last %d calls failed (%s); repair it, or pause its topics before their attempts are used up", r.Destination, r.Failures, r.LastError)
		}
	}
	if more -= mostReceivers; more > 0 {
		f.add(seeTo, "receivers", "%d more are so: carillon ctl destinations", more)
	}
}
