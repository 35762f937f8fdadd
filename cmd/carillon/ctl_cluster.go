package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clusterAnswer is what ctl reads of GET /v1/cluster.
type clusterAnswer struct {
	ClusterID string     `json:"cluster_id"`
	Healthy   bool       `json:"healthy"`
	Replicas  int        `json:"replicas"`
	Nodes     []nodeRow  `json:"nodes"`
	Shards    []shardRow `json:"shards"`
}

type nodeRow struct {
	Name          string `json:"name"`
	HTTP          string `json:"http"`
	State         string `json:"state"`
	Leads         int    `json:"leads"`
	Replicas      int    `json:"replicas"`
	Version       string `json:"version"`
	Unfit         string `json:"unfit"`
	ClockOffsetMs *int64 `json:"clock_offset_ms"`
}

func (r nodeRow) clock() string {
	if r.ClockOffsetMs == nil {
		return "-"
	}
	return fmt.Sprintf("%+d ms", *r.ClockOffsetMs)
}

type shardRow struct {
	Shard    int      `json:"shard"`
	Leader   string   `json:"leader"`
	Epoch    uint32   `json:"epoch"`
	Replicas []string `json:"replicas"`
	State    string   `json:"state"`
}

type ctlClusterCmd struct {
	Shards bool `help:"Show every shard, not only those that are not ok."`
}

func (*ctlClusterCmd) Examples() string {
	return `carillon ctl cluster
carillon ctl cluster --shards --url http://n2:7700     as n2 sees it`
}

func (c *ctlClusterCmd) Run(ctl *ctlCmd, term *terminal) error {
	body, answer, err := ctl.cluster()
	if err != nil {
		return err
	}
	if ctl.JSON {
		return printJSON(term.out, body)
	}
	if err := printNodes(term.out, answer); err != nil {
		return err
	}
	fmt.Fprintf(term.out, "\nshards: %s\n", summary(answer.Shards))
	rows := answer.Shards
	if !c.Shards {
		rows = slices.DeleteFunc(rows, func(r shardRow) bool { return r.State == "ok" })
	}
	return printShards(term.out, rows)
}

// cluster asks for the node's view of its cluster.
func (c *ctlCmd) cluster() (body []byte, answer clusterAnswer, err error) {
	if _, body, err = c.do(call{method: http.MethodGet, path: apiPath("cluster")}); err != nil {
		return nil, answer, err
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, answer, fmt.Errorf("read the answer: %w", err)
	}
	return body, answer, nil
}

// clusterPoll is how often a cluster is looked at of which something is waited for.
const clusterPoll = 200 * time.Millisecond

// await looks at the cluster until nothing is left, at most so long: then what is left is the error.
func (c *ctlCmd) await(most time.Duration, look func(*clusterAnswer) (left string, err error)) error {
	over := time.After(most)
	tick := time.NewTicker(clusterPoll)
	defer tick.Stop()
	for {
		_, answer, err := c.cluster()
		if err != nil {
			return err
		}
		left, err := look(&answer)
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

func printNodes(out io.Writer, a clusterAnswer) error {
	health, id := "not healthy", a.ClusterID
	if a.Healthy {
		health = "healthy"
	}
	if id == "" {
		id = "not founded yet"
	}
	fmt.Fprintf(out, "cluster %s: %s\n\n", printable(id), health)
	t := newTable(out, "NODE", "STATE", "LEADS", "REPLICAS", "CLOCK", "HTTP", "VERSION")
	for _, n := range a.Nodes {
		t.row(n.Name, n.State, strconv.Itoa(n.Leads), strconv.Itoa(n.Replicas), n.clock(), n.HTTP, n.Version)
	}
	if err := t.w.Flush(); err != nil {
		return err
	}
	for _, n := range a.Nodes {
		if n.Unfit != "" {
			fmt.Fprintf(out, "\n%s should not lead: %s\n", printable(n.Name), printable(n.Unfit))
		}
	}
	return nil
}

// summary counts shards by state, as "16: 15 ok, 1 moving".
func summary(shards []shardRow) string {
	var states []string
	count := map[string]int{}
	for _, s := range shards {
		if count[s.State]++; count[s.State] == 1 {
			states = append(states, s.State)
		}
	}
	slices.Sort(states)
	for i, state := range states {
		states[i] = fmt.Sprintf("%d %s", count[state], printable(state))
	}
	return strings.TrimSuffix(fmt.Sprintf("%d: %s", len(shards), strings.Join(states, ", ")), ": ")
}

func printShards(out io.Writer, rows []shardRow) error {
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	t := newTable(out, "SHARD", "STATE", "LEADER", "EPOCH", "REPLICAS")
	for _, r := range rows {
		leader := r.Leader
		if leader == "" {
			leader = "-"
		}
		t.row(strconv.Itoa(r.Shard), r.State, leader, strconv.FormatUint(uint64(r.Epoch), 10), strings.Join(r.Replicas, ","))
	}
	return t.w.Flush()
}

type ctlShardCmd struct {
	Number uint32 `arg:"" help:"The shard's number."`
}

func (s *ctlShardCmd) Run(ctl *ctlCmd, term *terminal) error {
	_, body, err := ctl.do(call{method: http.MethodGet, path: apiPath("cluster", "shards", strconv.FormatUint(uint64(s.Number), 10))})
	if err != nil {
		return err
	}
	if ctl.JSON {
		return printJSON(term.out, body)
	}
	return printDetail(term.out, body)
}

// nodeRef names one node.
type nodeRef struct {
	Node string `arg:"" help:"The node's name."`
}

func (n nodeRef) path(more ...string) string {
	return apiPath(append([]string{"cluster", "nodes", n.Node}, more...)...)
}

type ctlDrainCmd struct {
	nodeRef
	Wait time.Duration `placeholder:"10m" help:"Wait until it is drained, at most so long; exit 1 if it takes longer."`
}

func (*ctlDrainCmd) Examples() string {
	return `carillon ctl drain n3 --wait 10m && carillon ctl remove n3`
}

func (d *ctlDrainCmd) Run(ctl *ctlCmd, term *terminal) error {
	n, err := ctl.changeNode(call{method: http.MethodPost, path: d.path("drain")})
	if err != nil {
		return err
	}
	if d.Wait > 0 && n.State != "drained" {
		if err := d.await(ctl); err != nil {
			return err
		}
		n.State = "drained"
	}
	return ctl.showNode(term, n)
}

func (d *ctlDrainCmd) await(ctl *ctlCmd) error {
	return ctl.await(d.Wait, func(a *clusterAnswer) (string, error) {
		at := slices.IndexFunc(a.Nodes, func(n nodeRow) bool { return n.Name == d.Node })
		if at < 0 {
			return "", fmt.Errorf("%s is no longer in the cluster", d.Node)
		}
		n := a.Nodes[at]
		if n.State == "drained" {
			return "", nil
		}
		return fmt.Sprintf("%s is %s with %d replicas left after %s; the drain goes on", d.Node, n.State, n.Replicas, d.Wait), nil
	})
}

type ctlResumeCmd struct{ nodeRef }

func (r *ctlResumeCmd) Run(ctl *ctlCmd, term *terminal) error {
	n, err := ctl.changeNode(call{method: http.MethodPost, path: r.path("resume")})
	if err != nil {
		return err
	}
	return ctl.showNode(term, n)
}

type ctlRemoveCmd struct {
	nodeRef
	Force bool `help:"Even if it is up and not drained: its replicas are lost at once."`
}

func (r *ctlRemoveCmd) Run(ctl *ctlCmd, term *terminal) error {
	query := url.Values{}
	if r.Force {
		query.Set("force", "true")
	}
	n, err := ctl.changeNode(call{method: http.MethodDelete, path: r.path(), query: query})
	if err != nil {
		return err
	}
	return ctl.showNode(term, n)
}

// changedNode is the answer to a change of a node.
type changedNode struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

func (c *ctlCmd) changeNode(r call) (n changedNode, err error) {
	_, body, err := c.do(r)
	if err != nil {
		return n, err
	}
	if err := json.Unmarshal(body, &n); err != nil {
		return n, fmt.Errorf("read the answer: %w", err)
	}
	return n, nil
}

func (c *ctlCmd) showNode(term *terminal, n changedNode) error {
	if c.JSON {
		return printJSON(term.out, plain(n))
	}
	_, err := fmt.Fprintf(term.out, "%s: %s\n", printable(n.Name), printable(n.State))
	return err
}
