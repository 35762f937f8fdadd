package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
	"carillon/transport/api/web"
)

type rollingRestartCmd struct {
	Nodes []string      `arg:"" optional:"" name:"node" help:"Nodes, in this order; all of them without."`
	Run_  string        `name:"run" placeholder:"COMMAND" help:"Restart a node by this shell command, {} standing for its name; else you are asked to."`
	Wait  time.Duration `default:"10m" help:"How long each step may take: a restart, and until all is well again (${default})."`
}

func (r *rollingRestartCmd) Run(ctl *Command, term *terminal.Terminal) error {
	names, err := r.names(ctl)
	if err != nil {
		return err
	}
	for i, name := range names {
		if err := r.restart(ctl, term, name); err != nil {
			return fmt.Errorf("%w; restarted: %s; not yet: %s", err, listed(names[:i]), listed(names[i:]))
		}
	}
	return ctl.report(term, "", "done", "all are back, and the cluster is healthy")
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func (r *rollingRestartCmd) names(ctl *Command) ([]string, error) {
	cluster, err := within(ctl, false, ctl.client.Cluster)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, n := range cluster.Nodes {
		if n.State != client.NodeLeft {
			all = append(all, n.Name)
		}
	}
	for _, name := range r.Nodes {
		if !slices.Contains(all, name) {
			return nil, terminal.Usagef("there is no node %s; there are %s", name, listed(all))
		}
	}
	if len(r.Nodes) > 0 {
		return r.Nodes, nil
	}
	return all, nil
}

// restart has one node restarted, and waits until all is well again.
func (r *rollingRestartCmd) restart(ctl *Command, term *terminal.Terminal, name string) error {
	before := uint32(0)
	err := ctl.awaitBeyond(r.Wait, func(c *client.Cluster) string {
		if n := nodeNamed(c, name); n != nil {
			before = n.Starts
		}
		return ctl.unwellAnywhere(c)
	})
	if err != nil {
		return fmt.Errorf("the cluster is not healthy before the restart of %s: %w", name, err)
	}
	if err := ctl.report(term, name, "restart", "restart "+name+" now"); err != nil {
		return err
	}
	if r.Run_ != "" {
		if err := r.run(term, name); err != nil {
			return err
		}
	}
	err = ctl.awaitBeyond(r.Wait, func(c *client.Cluster) string {
		n := nodeNamed(c, name)
		if n == nil || n.Starts <= before {
			return name + " has not been restarted yet"
		}
		return ctl.unwellAnywhere(c)
	})
	if err != nil {
		return err
	}
	return ctl.report(term, name, "back", name+" is back and ready")
}

// run gives the shell a name that the cluster has told: any other text could be a command.
func (r *rollingRestartCmd) run(term *terminal.Terminal, name string) error {
	if !web.ValidNode(name) {
		return fmt.Errorf("--run for %q: this is not a name of a node", name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.Wait)
	defer cancel()
	command := exec.CommandContext(ctx, "sh", "-c", strings.ReplaceAll(r.Run_, "{}", name))
	command.Stdout, command.Stderr = term.Raw().Err, term.Raw().Err
	if err := command.Run(); err != nil {
		return fmt.Errorf("--run for %s: %w", name, err)
	}
	return nil
}

func nodeNamed(c *client.Cluster, name string) *client.Node {
	for i := range c.Nodes {
		if n := &c.Nodes[i]; n.Name == name && n.State != client.NodeLeft {
			return n
		}
	}
	return nil
}

// unwell is the reason why no node should be taken away now; "": one may.
func unwell(c *client.Cluster) string {
	for i := range c.Nodes {
		switch n := &c.Nodes[i]; n.State {
		case client.NodeSuspect, client.NodeDown, client.NodeDraining:
			return fmt.Sprintf("%s is %s", n.Name, n.State)
		}
		if why := c.Nodes[i].Unfit; why != "" {
			return fmt.Sprintf("%s should not lead: %s", c.Nodes[i].Name, why)
		}
	}
	for i := range c.Shards {
		if s := &c.Shards[i]; s.State != client.ShardOK {
			return fmt.Sprintf("shard %d is %s", s.Number, s.State)
		}
	}
	if len(c.Shards) == 0 {
		return "the cluster is not founded yet"
	}
	if !c.Healthy {
		return "the cluster is not healthy"
	}
	return ""
}

// unwellAnywhere is unwell for each node, which must be ready besides: one may hear another again
// before a third one does, and these two alone would be no majority yet.
func (c *Command) unwellAnywhere(cluster *client.Cluster) string {
	if left := unwell(cluster); left != "" {
		return left
	}
	for i := range cluster.Nodes {
		n := &cluster.Nodes[i]
		if n.State == client.NodeLeft {
			continue
		}
		seen := new(client.Cluster)
		_, err := c.at(n, "/readyz")
		if err == nil {
			seen, err = c.seenBy(n)
		}
		if err != nil {
			return fmt.Sprintf("%s at %s: %v", n.Name, n.HTTP, err)
		}
		if left := unwell(seen); left != "" {
			return n.Name + " sees: " + left
		}
	}
	return ""
}

const looksOnEnd = 2

// awaitBeyond looks at the cluster until nothing is left, in two looks on end: each takes a while,
// in which a node that was asked first may have changed. That no node answers for a while is part
// of it.
func (c *Command) awaitBeyond(most time.Duration, look func(*client.Cluster) (left string)) error {
	over := time.After(most)
	tick := time.NewTicker(clusterPoll)
	defer tick.Stop()
	var last error
	for calm := 0; ; {
		cluster, err := within(c, false, c.client.Cluster)
		if err == nil {
			if left := look(cluster); left != "" {
				err = errors.New(left)
			}
		}
		if err == nil {
			if calm++; calm == looksOnEnd {
				return nil
			}
			continue
		}
		calm, last = 0, err
		select {
		case <-tick.C:
		case <-over:
			return fmt.Errorf("after %s: %w", most, last)
		}
	}
}

// errNoAnswer is of a node that was waited for in vain.
var errNoAnswer = errors.New("no answer")

// at asks one node, at the address of its API.
func (c *Command) at(n *client.Node, path string) ([]byte, error) {
	alone := *c
	alone.URL = []string{c.addressOf(n)}
	alone.Timeout = min(c.Timeout, nodeTimeout)
	var err error
	if alone.client, err = client.New(alone.URL, c.options); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), alone.Timeout)
	defer cancel()
	body, err := alone.client.Do(ctx, client.Request{Method: http.MethodGet, Path: path})
	switch { // in words without the flags of this command, which are about other nodes
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("no node answers at %s", alone.URL[0])
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%w from %s within %s", errNoAnswer, alone.URL[0], alone.Timeout)
	}
	return body, alone.explain(err, false)
}

// addressOf is the URL of a node's API. A node without others that listens at all addresses knows
// none of its own: it is where it was reached.
func (c *Command) addressOf(n *client.Node) string {
	if at, err := netip.ParseAddrPort(n.HTTP); err == nil && at.Addr().IsUnspecified() {
		return c.URL[0]
	}
	scheme, _, _ := strings.Cut(c.URL[0], "://")
	return scheme + "://" + n.HTTP
}

// seenBy is the cluster as one node sees it.
func (c *Command) seenBy(n *client.Node) (*client.Cluster, error) {
	return answerOf[client.Cluster](c.at(n, client.Path("cluster")))
}

// report prints a step: a line, or with --json an object.
func (c *Command) report(term *terminal.Terminal, node, step, text string) error {
	if !c.JSON {
		_, err := fmt.Fprintln(term.Out, printable(text))
		return err
	}
	o := &object{}
	o.text("node", node)
	o.set("step", step)
	return printJSON(term.Out, o.bytes())
}
