package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

type clusterCmd struct {
	Shards bool `help:"Show every shard, not only those that are not ok."`
}

func (c *clusterCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.show(term, readCluster, reading(func(answer *client.Cluster) error {
		if err := printNodes(term.Out, answer); err != nil {
			return err
		}
		if answer.ID == "" { // it waits for other nodes, and says for what
			if _, err := ctl.do(readReady); err != nil {
				fmt.Fprintf(term.Out, "\n%s\n", printable(err.Error()))
			}
		}
		fmt.Fprintf(term.Out, "\nshards: %s\n", summary(answer.Shards))
		if n := full(answer.Shards); n > 0 {
			fmt.Fprintf(term.Out, fullShards+"\n", terminal.Many(n, "shard is full and refuses", "shards are full and refuse"))
		}
		if r := answer.Resharding; r != nil {
			progress, _ := (&shardsCmd{Number: r.To}).progress(answer)
			fmt.Fprintf(term.Out, "their number grows from %d to %d: %s\n", r.From, r.To, printable(progress))
		}
		if m := answer.Moves; m != nil {
			fmt.Fprintf(term.Out, "moves: %s\n", movesText(m))
		}
		rows := answer.Shards
		if !c.Shards {
			rows = slices.DeleteFunc(rows, func(s client.Shard) bool { return s.State == client.ShardOK && !s.Full })
		}
		return printShards(term.Out, rows)
	}))
}

var (
	readCluster = client.Request{Method: http.MethodGet, Path: client.Path("cluster")}
	readReady   = client.Request{Method: http.MethodGet, Path: "/readyz"}
)

// clusterPoll is how often a cluster is looked at of which something is waited for.
const clusterPoll = 200 * time.Millisecond

// await looks at the cluster until nothing is left, for at most this long. Then what is left is the
// error.
func (c *Command) await(most time.Duration, look func(*client.Cluster) (left string, err error)) error {
	over := time.After(most)
	tick := time.NewTicker(clusterPoll)
	defer tick.Stop()
	for {
		cluster, err := within(c, false, c.client.Cluster)
		if err != nil {
			return err
		}
		left, err := look(cluster)
		if err != nil || left == "" {
			return err
		}
		select {
		case <-tick.C:
		case <-over:
			return errors.New(left)
		}
	}
}

func printNodes(out io.Writer, a *client.Cluster) error {
	health := "not healthy"
	if a.Healthy {
		health = "healthy"
	}
	if a.Resharding != nil {
		health += ", resharding"
	}
	fmt.Fprintf(out, "cluster %s: %s\n", printable(cmp.Or(a.ID, "not founded yet")), health)
	if a.FeatureLevel != 0 {
		fmt.Fprintln(out, levelLine(a))
	}
	fmt.Fprintln(out)
	head := []string{"NODE", "STATE", "LEADS", "REPLICAS", "HEARD", "CLOCK", "HTTP", "VERSION"}
	zoned := slices.ContainsFunc(a.Nodes, func(n client.Node) bool { return n.Zone != "" })
	if zoned {
		head = append(head, "ZONE")
	}
	t := newTable(out, head...)
	for _, n := range a.Nodes {
		row := []string{n.Name, string(n.State), leadsOf(&n), strconv.Itoa(n.Replicas), lastHeard(&n), clockOffset(&n), n.HTTP, n.Version}
		if zoned {
			row = append(row, n.Zone)
		}
		t.row(row...)
	}
	if err := t.w.Flush(); err != nil {
		return err
	}
	for _, n := range a.Nodes {
		if n.State == client.NodeSuspect {
			fmt.Fprintf(out, "\n%s is suspect: it was last heard %s, and this is as of then\n", printable(n.Name), lastHeard(&n))
		}
		if n.Unfit != "" {
			fmt.Fprintf(out, "\n%s should not lead: %s\n", printable(n.Name), printable(n.Unfit))
		}
		if n.LowDisk {
			fmt.Fprintf(out, "\n%s has little room on its disk: shards with a replica on it refuse adds\n", printable(n.Name))
		}
	}
	return nil
}

// leadsOf is how many shards a node leads; the number of a suspect one is unknown.
func leadsOf(n *client.Node) string {
	if n.State == client.NodeSuspect {
		return "?"
	}
	return strconv.Itoa(n.Leads)
}

// lastHeard is how long ago the asked node has heard another one: one that has just died is alive
// still. It hears itself.
func lastHeard(n *client.Node) string {
	if n.SilentMs == 0 && n.State != client.NodeSuspect && n.State != client.NodeDown {
		return "-"
	}
	return fmt.Sprintf("%.1f s ago", float64(n.SilentMs)/1000)
}

func clockOffset(n *client.Node) string {
	if n.ClockOffsetMs == nil {
		return "-"
	}
	return fmt.Sprintf("%+d ms", *n.ClockOffsetMs)
}

func movesText(m *client.Moves) string {
	text := fmt.Sprintf("%d under way", m.UnderWay)
	if m.Bytes > 0 {
		text += fmt.Sprintf(", %d MB", m.Bytes/1e6)
	}
	if m.Waiting > 0 {
		why := "a node has just joined, and others may follow"
		switch {
		case len(m.AtLimit) > 0:
			why = printable(strings.Join(m.AtLimit, ", ")) + " at the limit of what a node sends or receives"
		case len(m.WaitsFor) > 0:
			why = "for " + printable(strings.Join(m.WaitsFor, ", ")) + " to be well or replaced"
		}
		text += fmt.Sprintf(", %d wait: %s", m.Waiting, why)
	}
	if m.Repairs > 0 {
		text += fmt.Sprintf("; %d of them repair shards", m.Repairs)
	}
	return text
}

// moving is the end of a text about replicas that are not yet where they should be.
func moving(a *client.Cluster) string {
	if a.Moves == nil {
		return ""
	}
	return "; moves: " + movesText(a.Moves)
}

// summary counts shards by state, as "16: 15 ok, 1 moving".
func summary(shards []client.Shard) string {
	var states []string
	count := map[string]int{}
	for _, s := range shards {
		state := string(s.State)
		if count[state]++; count[state] == 1 {
			states = append(states, state)
		}
	}
	slices.Sort(states)
	for i, state := range states {
		states[i] = fmt.Sprintf("%d %s", count[state], printable(state))
	}
	return strings.TrimSuffix(fmt.Sprintf("%d: %s", len(shards), strings.Join(states, ", ")), ": ")
}

// fullShards is what to do about full shards.
const fullShards = "%s adds, whatever memory there is: carillon ctl shards makes more of them"

// full counts those that are.
func full(shards []client.Shard) (n int64) {
	for i := range shards {
		if shards[i].Full {
			n++
		}
	}
	return n
}

func printShards(out io.Writer, rows []client.Shard) error {
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	t := newTable(out, "SHARD", "STATE", "LEADER", "EPOCH", "REPLICAS")
	for _, r := range rows {
		leader, epoch, state := cmp.Or(r.Leader, "-"), strconv.FormatUint(uint64(r.Epoch), 10), string(r.State)
		if r.Full {
			state += ", full"
		}
		t.row(strconv.Itoa(r.Number), state, leader, epoch, strings.Join(r.Replicas, ","))
	}
	return t.w.Flush()
}

type shardCmd struct {
	Number uint32 `arg:"" help:"The shard's number."`
}

func (s *shardCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.showDetail(term, client.Request{Method: http.MethodGet, Path: client.Path("cluster", "shards", strconv.FormatUint(uint64(s.Number), 10))})
}

// nodeRef names one node.
type nodeRef struct {
	Node string `arg:"" help:"The node's name."`
}

type drainCmd struct {
	nodeRef
	Wait time.Duration `placeholder:"10m" help:"Wait at most this long until it is drained; exit 1 if it takes longer."`
}

func (d *drainCmd) Run(ctl *Command, term *terminal.Terminal) error {
	state, err := within(ctl, true, func(ctx context.Context) (client.NodeState, error) {
		return ctl.client.DrainNode(ctx, d.Node)
	})
	if err == nil && d.Wait > 0 && state != client.NodeDrained {
		state, err = client.NodeDrained, d.await(ctl)
	}
	return ctl.showNode(term, d.Node, state, err)
}

func (d *drainCmd) await(ctl *Command) error {
	return ctl.await(d.Wait, func(a *client.Cluster) (string, error) {
		at := slices.IndexFunc(a.Nodes, func(n client.Node) bool { return n.Name == d.Node })
		if at < 0 {
			return "", fmt.Errorf("%s is no longer in the cluster", d.Node)
		}
		n := a.Nodes[at]
		// Of a node that is down, its state is that, and it is not seen whether it is drained.
		if n.State == client.NodeDrained || n.State == client.NodeDown && n.Replicas == 0 {
			return "", nil
		}
		return fmt.Sprintf("%s is %s with %d replicas left after %s; the drain continues%s", d.Node, n.State, n.Replicas, d.Wait, moving(a)), nil
	})
}

type resumeCmd struct{ nodeRef }

func (r *resumeCmd) Run(ctl *Command, term *terminal.Terminal) error {
	state, err := within(ctl, true, func(ctx context.Context) (client.NodeState, error) {
		return ctl.client.ResumeNode(ctx, r.Node)
	})
	return ctl.showNode(term, r.Node, state, err)
}

type removeCmd struct {
	nodeRef
	Force      bool `help:"Even if it is up and not drained: its replicas are lost at once."`
	AcceptLoss bool `help:"Even if a shard is left without a majority of its replicas: what only the lost ones had is lost."`
}

func (r *removeCmd) Run(ctl *Command, term *terminal.Terminal) error {
	state, err := within(ctl, true, func(ctx context.Context) (client.NodeState, error) {
		return ctl.client.RemoveNode(ctx, r.Node, client.Removal{Force: r.Force, AcceptLoss: r.AcceptLoss})
	})
	return ctl.showNode(term, r.Node, state, err)
}

// showNode prints the state in which a change has left a node, unless it has failed.
func (c *Command) showNode(term *terminal.Terminal, name string, state client.NodeState, err error) error {
	if err != nil {
		return err
	}
	if c.JSON {
		o := &object{}
		o.set("name", name)
		o.set("state", state)
		return printJSON(term.Out, o.bytes())
	}
	_, err = fmt.Fprintf(term.Out, "%s: %s\n", printable(name), printable(string(state)))
	return err
}
