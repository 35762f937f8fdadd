package api

import (
	"fmt"

	"carillon/timer"
	"carillon/timer/recurrence"
	"carillon/transport/api/internal/strictjson"
)

func (rq *request) readCluster() *problem {
	v := rq.s.cfg.Engine.View()
	o := object{b: appendCluster(rq.out(), &v), begun: true}
	o.b = o.b[:len(o.b)-1]
	if rq.who != nil { // so that a page offers nothing that would be refused
		o.texts("scopes", rq.who.scopes.names())
	}
	rq.json(200, o.end())
	return nil
}

func (rq *request) readShard() *problem {
	v, ok := rq.core.Backup.Shard(rq.shard)
	if !ok {
		return fail(404, notFound, "there is no such shard")
	}
	o := object{b: rq.out()}
	o.shard(&v.ShardRow)
	if v.Known {
		o.integer("term", int64(v.Term))
		o.integer("applied", int64(v.Applied))
		o.integer("timers", v.Timers)
		o.str("hash", fmt.Sprintf("%016x", v.Hash))
	}
	rq.json(200, o.end())
	return nil
}

func (rq *request) drainNode() *problem {
	if err := rq.core.Cluster.Drain(rq.s.base, rq.node); err != nil {
		return rq.clusterFault(err)
	}
	state := NodeDraining
	if rq.nodeState() == NodeDrained {
		state = NodeDrained
	}
	rq.changedNode(202, state)
	return nil
}

func (rq *request) resumeNode() *problem {
	if err := rq.core.Cluster.Resume(rq.s.base, rq.node); err != nil {
		return rq.clusterFault(err)
	}
	state := rq.nodeState()
	if state == NodeDraining || state == NodeDrained || state == "" {
		state = NodeAlive // the view is a moment behind the decision
	}
	rq.changedNode(200, state)
	return nil
}

func (rq *request) removeNode() *problem {
	force, p := rq.query.boolean("force", false)
	if p != nil {
		return p
	}
	acceptLoss, p := rq.query.boolean("accept_loss", false)
	if p != nil {
		return p
	}
	if err := rq.core.Cluster.Remove(rq.s.base, rq.node, force, acceptLoss); err != nil {
		return rq.clusterFault(err)
	}
	rq.changedNode(200, NodeLeft)
	return nil
}

// setReplicas takes {"replicas":n}.
func (rq *request) setReplicas() *problem {
	if _, p := rq.mediaType(); p != nil {
		return p
	}
	r := rq.reader()
	replicas := int64(0)
	r.members([]string{"replicas"}, func(name string) { replicas = r.ranged(name, 1, maxReplicas) })
	if r.Err() == nil && replicas == 0 {
		r.fail(bad(badRequest, "replicas: is missing"))
	}
	if r.Err() != nil {
		return r.problem()
	}
	if err := rq.core.Cluster.SetReplicas(rq.s.base, int(replicas)); err != nil {
		return rq.clusterFault(err)
	}
	o := object{b: rq.out()}
	o.integer("replicas", replicas)
	rq.json(202, o.end())
	return nil
}

// finalize ends an upgrade.
func (rq *request) finalize() *problem {
	level, err := rq.core.Cluster.Finalize(rq.s.base)
	if err != nil {
		return rq.clusterFault(err)
	}
	o := object{b: rq.out()}
	o.integer("feature_level", int64(level))
	rq.json(200, o.end())
	return nil
}

// nodeState is the state of the request's node in this node's view, "" when it is not there.
func (rq *request) nodeState() NodeState {
	v := rq.s.cfg.Engine.View()
	for i := range v.Nodes {
		if v.Nodes[i].Name == rq.node {
			return v.Nodes[i].State
		}
	}
	return ""
}

func (rq *request) changedNode(status int, state NodeState) {
	o := object{b: rq.out()}
	o.str("name", rq.node)
	o.str("state", string(state))
	rq.json(status, o.end())
}

func appendCluster(b []byte, v *ClusterView) []byte {
	o := object{b: b}
	if v.ClusterID != "" {
		o.str("cluster_id", v.ClusterID)
	}
	o.str("version", v.Version)
	o.str("tzdata", recurrence.Version)
	o.boolean("healthy", v.Healthy)
	if v.Replicas > 0 {
		o.integer("replicas", int64(v.Replicas))
	}
	if v.ClusterID != "" {
		o.integer("feature_level", int64(v.Level))
	}
	if u := v.Upgrade; u != nil {
		o.name("upgrade")
		upgrade := object{b: o.b}
		upgrade.integer("feature_level", int64(u.Level))
		upgrade.name("lacking")
		upgrade.b = appendNames(upgrade.b, u.Lacking)
		o.b = upgrade.end()
	}
	o.name("nodes")
	nodes := array{b: o.b}
	for i := range v.Nodes {
		nodes.next()
		nodes.b = appendNode(nodes.b, &v.Nodes[i])
	}
	o.b = nodes.end()
	o.name("shards")
	rows := array{b: o.b}
	for i := range v.Shards {
		rows.next()
		row := object{b: rows.b}
		row.shard(&v.Shards[i])
		rows.b = row.end()
	}
	o.b = rows.end()
	return o.end()
}

func appendNode(b []byte, n *NodeView) []byte {
	o := object{b: b}
	o.str("name", n.Name)
	if n.HTTP != "" {
		o.str("http", n.HTTP)
	}
	o.str("state", string(n.State))
	o.integer("leads", int64(n.Leads))
	o.integer("replicas", int64(n.Replicas))
	if n.Version != "" {
		o.str("version", n.Version)
	}
	if n.Level > 0 {
		o.integer("feature_level", int64(n.Level))
	}
	if n.Starts > 0 {
		o.integer("starts", int64(n.Starts))
	}
	if n.SilentMs > 0 {
		o.integer("silent_ms", n.SilentMs)
	}
	if n.Unfit != "" {
		o.str("unfit", n.Unfit)
	}
	if n.ClockKnown {
		o.integer("clock_offset_ms", n.ClockOffsetMs)
	}
	return o.end()
}

func (o *object) shard(r *ShardRow) {
	o.integer("shard", int64(r.Shard))
	if r.Leader != "" {
		o.str("leader", r.Leader)
	}
	o.integer("epoch", int64(r.Epoch))
	o.name("replicas")
	o.b = appendNames(o.b, r.Replicas)
	o.str("state", string(r.State))
}

func appendNames(b []byte, list []string) []byte {
	names := array{b: b}
	for _, name := range list {
		names.next()
		names.b = appendString(names.b, name)
	}
	return names.end()
}

// parseShard reads a shard's number; one that no cluster has (ok, but 0) is left to be not found.
func parseShard(s []byte) (id timer.ShardID, ok bool) {
	n, ok := strictjson.ParseInteger(s)
	if !ok || n < 0 {
		return 0, false
	}
	if n > 65535 {
		return 0, true
	}
	return timer.ShardID(n), true
}
