// Package cluster answers operators: nodes, shards, the work of all nodes, the receivers that they
// call, and a backup of all.
package cluster

import (
	"errors"
	"fmt"

	"carillon/timer/recurrence"
	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

// Read answers with the cluster as this node sees it.
func Read(rq *web.Request) *web.Problem {
	v := rq.Engine.View()
	o := web.Object{B: rq.Out()}
	members(&o, &v)
	if rq.Who != nil { // so that a page offers nothing that would be refused
		o.Texts("scopes", rq.Who.Scopes.Names())
	}
	return rq.JSON(200, o.End())
}

// Shard answers with one shard as this node sees it.
func Shard(rq *web.Request) *web.Problem {
	v, ok := rq.Core.Backup.Shard(rq.Shard)
	if !ok {
		return web.Fail(404, web.NotFound, "there is no such shard")
	}
	o := web.Object{B: rq.Out()}
	shardMembers(&o, &v.ShardRow)
	if v.Known {
		o.Integer("term", int64(v.Term))
		o.Integer("applied", int64(v.Applied))
		o.Integer("timers", v.Timers)
		o.Text("hash", fmt.Sprintf("%016x", v.Hash))
	}
	return rq.JSON(200, o.End())
}

// Drain has everything moved off a node.
func Drain(rq *web.Request) *web.Problem {
	if err := rq.Core.Cluster.Drain(rq.Base, rq.NodeName); err != nil {
		return fault(rq, err)
	}
	state := backend.NodeDraining
	if nodeState(rq) == backend.NodeDrained {
		state = backend.NodeDrained
	}
	return changedNode(rq, 202, state)
}

// Resume takes a drain back.
func Resume(rq *web.Request) *web.Problem {
	if err := rq.Core.Cluster.Resume(rq.Base, rq.NodeName); err != nil {
		return fault(rq, err)
	}
	state := nodeState(rq)
	if state == backend.NodeDraining || state == backend.NodeDrained || state == "" {
		state = backend.NodeAlive // the view is a moment behind the decision
	}
	return changedNode(rq, 200, state)
}

// Remove takes a node out of the cluster.
func Remove(rq *web.Request) *web.Problem {
	force, p := rq.Query.Boolean("force", false)
	if p != nil {
		return p
	}
	acceptLoss, p := rq.Query.Boolean("accept_loss", false)
	if p != nil {
		return p
	}
	if err := rq.Core.Cluster.Remove(rq.Base, rq.NodeName, force, acceptLoss); err != nil {
		return fault(rq, err)
	}
	return changedNode(rq, 200, backend.NodeLeft)
}

// SetReplicas takes {"replicas":n}.
func SetReplicas(rq *web.Request) *web.Problem {
	replicas, p := readNumber(rq, "replicas", maxReplicas)
	if p != nil {
		return p
	}
	if err := rq.Core.Cluster.SetReplicas(rq.Base, int(replicas)); err != nil {
		return fault(rq, err)
	}
	o := web.Object{B: rq.Out()}
	o.Integer("replicas", replicas)
	return rq.JSON(202, o.End())
}

// SetShards takes {"shards":n}; a dry run answers what it would need.
func SetShards(rq *web.Request) *web.Problem {
	dry, p := rq.Dry()
	if p != nil {
		return p
	}
	shards, p := readNumber(rq, "shards", maxShards)
	if p != nil {
		return p
	}
	o := web.Object{B: rq.Out()}
	if dry {
		needs, err := rq.Core.Cluster.PreviewShards(rq.Base, int(shards))
		if err != nil {
			return fault(rq, err)
		}
		o.Integer("bytes", needs.Bytes)
		o.Integer("memory_bytes", needs.MemoryBytes)
		o.Integer("moves", int64(needs.Moves))
		return rq.JSON(200, o.End())
	}
	if err := rq.Core.Cluster.SetShards(rq.Base, int(shards)); err != nil {
		return fault(rq, err)
	}
	o.Integer("shards", shards)
	return rq.JSON(202, o.End())
}

// readNumber reads a body with one number, from 1 on.
func readNumber(rq *web.Request, name string, most int64) (n int64, p *web.Problem) {
	r, p := rq.Reader()
	if p != nil {
		return 0, p
	}
	r.Body([]string{name}, func(string) { n = r.Ranged(name, 1, most) })
	if r.Err() == nil && n == 0 {
		r.Reject(web.Bad(web.BadRequest, name+": is missing"))
	}
	return n, r.Problem()
}

// maxShards bounds the number in a request; the cluster has a bound of its own.
const maxShards = 1 << 30

// Finalize ends an upgrade.
func Finalize(rq *web.Request) *web.Problem {
	level, err := rq.Core.Cluster.Finalize(rq.Base)
	if err != nil {
		return fault(rq, err)
	}
	o := web.Object{B: rq.Out()}
	o.Integer("feature_level", int64(level))
	return rq.JSON(200, o.End())
}

// nodeState is the state of the request's node in this node's view, "" when it is not there.
func nodeState(rq *web.Request) backend.NodeState {
	v := rq.Engine.View()
	for i := range v.Nodes {
		if v.Nodes[i].Name == rq.NodeName {
			return v.Nodes[i].State
		}
	}
	return ""
}

func changedNode(rq *web.Request, status int, state backend.NodeState) *web.Problem {
	o := web.Object{B: rq.Out()}
	o.Text("name", rq.NodeName)
	o.Text("state", string(state))
	return rq.JSON(status, o.End())
}

func members(o *web.Object, v *backend.ClusterView) {
	o.OptText("cluster_id", v.ClusterID)
	o.Text("version", v.Version)
	o.Text("tzdata", recurrence.Version)
	o.Boolean("healthy", v.Healthy)
	o.OptInteger("replicas", int64(v.Replicas))
	o.OptInteger("shards_total", int64(v.ShardsNow))
	if r := v.Resharding; r != nil {
		o.Nest("resharding", func(o *web.Object) {
			o.Integer("from", int64(r.From))
			o.Integer("to", int64(r.To))
			o.Integer("done", int64(r.Done))
			o.OptInteger("shard", int64(r.Shard))
			o.OptText("waits_for", string(r.WaitsFor))
		})
	}
	if m := v.Moves; m != nil {
		o.Nest("moves", func(o *web.Object) {
			o.Integer("under_way", int64(m.UnderWay))
			o.Integer("bytes", m.Bytes)
			o.Integer("waiting", int64(m.Waiting))
			o.Integer("repairs", int64(m.Repairs))
			o.OptTexts("at_limit", m.AtLimit)
			o.OptTexts("waits_for", m.WaitsFor)
		})
	}
	o.OptBoolean("test_clock", v.TestClock)
	if v.ClusterID != "" {
		o.Integer("feature_level", int64(v.Level))
	}
	if u := v.Upgrade; u != nil {
		o.Nest("upgrade", func(o *web.Object) {
			o.Integer("feature_level", int64(u.Level))
			o.Texts("lacking", u.Lacking)
		})
	}
	o.Objects("nodes", len(v.Nodes), func(o *web.Object, i int) { nodeMembers(o, &v.Nodes[i]) })
	o.Objects("shards", len(v.Shards), func(o *web.Object, i int) { shardMembers(o, &v.Shards[i]) })
}

func nodeMembers(o *web.Object, n *backend.NodeView) {
	o.Text("name", n.Name)
	o.OptText("http", n.HTTP)
	o.Text("state", string(n.State))
	o.Integer("leads", int64(n.Leads))
	o.Integer("replicas", int64(n.Replicas))
	o.OptText("version", n.Version)
	o.OptInteger("feature_level", int64(n.Level))
	o.OptInteger("starts", int64(n.Starts))
	o.OptInteger("silent_ms", n.SilentMs)
	o.OptText("unfit", n.Unfit)
	if n.ClockKnown {
		o.Integer("clock_offset_ms", n.ClockOffsetMs)
	}
}

func shardMembers(o *web.Object, r *backend.ShardRow) {
	o.Integer("shard", int64(r.Shard))
	o.OptText("leader", r.Leader)
	o.Integer("epoch", int64(r.Epoch))
	o.Texts("replicas", r.Replicas)
	o.Text("state", string(r.State))
}

// maxReplicas is the most that a shard may have.
const maxReplicas = 7

// fault is the problem that an error of Cluster is to the client.
func fault(rq *web.Request, err error) *web.Problem {
	if name := rq.ClusterError; name != nil {
		err = name(err)
	}
	switch {
	case errors.Is(err, backend.ErrUnknownNode):
		return web.Fail(404, web.NotFound, err.Error())
	case errors.Is(err, backend.ErrNotDrained):
		return web.Fail(409, web.NotDrained, err.Error()+": drain it first and wait until it is drained; ?force=true removes it as it is")
	case errors.Is(err, backend.ErrMajority):
		return web.Fail(409, web.NotDrained, err.Error()+": bring back the nodes that are down, with their data directories, and wait until all shards are ok; "+
			"if these are gone for good, ?accept_loss=true removes the node, and what only the lost replicas had is lost")
	case errors.Is(err, backend.ErrBadShards):
		return web.Fail(422, web.BadShards, err.Error())
	case errors.Is(err, backend.ErrResharding):
		return web.Fail(409, "busy", err.Error()+"; GET /v1/cluster shows how far it is")
	case errors.Is(err, backend.ErrNoOtherNode):
		return web.Fail(409, web.NotDrained, err.Error())
	}
	return web.Fault(err)
}
