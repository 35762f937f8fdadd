// Package cluster answers operators: nodes, shards, the work of all nodes, the receivers that they
// call, and a backup of all.
package cluster

import (
	"errors"
	"fmt"
	"math"

	"carillon/internal/feature"
	"carillon/timer"
	"carillon/timer/recurrence"
	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

// Read answers with the cluster as this node sees it.
func Read(rq *web.Request) *web.Problem {
	answer := struct {
		backend.ClusterView
		Scopes []string `json:"scopes,omitzero"` // so that a page offers nothing that would be refused
	}{ClusterView: rq.Engine.View()}
	v := &answer.ClusterView
	v.TZData, v.Nodes, v.Shards = recurrence.Version, orNone(v.Nodes), orNone(v.Shards)
	if v.Upgrade != nil {
		v.Upgrade.Lacking = orNone(v.Upgrade.Lacking)
	}
	if rq.Who != nil {
		answer.Scopes = rq.Who.Scopes.Names()
	}
	return rq.Value(200, answer)
}

// orNone is a list that is no null in JSON.
func orNone[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Shard answers with one shard as this node sees it. What its replica holds is of every topic.
func Shard(rq *web.Request) *web.Problem {
	v, ok := rq.Core.Backup.Shard(rq.Shard)
	if !ok {
		return web.Fail(404, web.NotFound, noShard(rq))
	}
	type replica struct {
		Term    uint64 `json:"term"`
		Applied uint64 `json:"applied"`
		Timers  int64  `json:"timers"`
		Hash    string `json:"hash"`
	}
	answer := struct {
		backend.ShardRow
		*replica
	}{ShardRow: v.ShardRow}
	if v.Known && rq.Who.SeesAll() {
		answer.replica = &replica{v.Term, v.Applied, v.Timers, fmt.Sprintf("%016x", v.Hash)}
	}
	return rq.Value(200, answer)
}

// noShard is why there is no shard of the request's number.
func noShard(rq *web.Request) string {
	r := rq.Engine.View().Resharding
	if r == nil || rq.Shard == 0 || int64(rq.Shard) > int64(r.To) {
		return "there is no such shard"
	}
	return fmt.Sprintf("there is no such shard yet: their number grows from %d to %d, and %d of %d new shards are made; "+
		"GET /v1/cluster shows how far it is", r.From, r.To, r.Done, r.To-r.From)
}

// Drain has everything moved off a node.
func Drain(rq *web.Request) *web.Problem {
	err := rq.Core.Cluster.Drain(rq.Base, rq.NodeName)
	state := backend.NodeDraining
	if nodeState(rq) == backend.NodeDrained {
		state = backend.NodeDrained
	}
	return changedNode(rq, 202, state, err)
}

// Resume takes a drain back.
func Resume(rq *web.Request) *web.Problem {
	err := rq.Core.Cluster.Resume(rq.Base, rq.NodeName)
	state := nodeState(rq)
	if state == backend.NodeDraining || state == backend.NodeDrained || state == "" {
		state = backend.NodeAlive // the view is a moment behind the decision
	}
	return changedNode(rq, 200, state, err)
}

// Remove takes a node out of the cluster.
func Remove(rq *web.Request) *web.Problem {
	force, acceptLoss := rq.Query.Boolean("force", false), rq.Query.Boolean("accept_loss", false)
	if p := rq.Query.Problem(); p != nil {
		return p
	}
	return changedNode(rq, 200, backend.NodeLeft, rq.Core.Cluster.Remove(rq.Base, rq.NodeName, force, acceptLoss))
}

// SetReplicas takes {"replicas":n}.
func SetReplicas(rq *web.Request) *web.Problem {
	replicas, p := readNumber(rq, "replicas", 1, maxReplicas)
	if p != nil {
		return p
	}
	return answer(rq, 202, map[string]int64{"replicas": replicas}, rq.Core.Cluster.SetReplicas(rq.Base, int(replicas)))
}

// SetShards takes {"shards":n}; a dry run answers what it would need.
func SetShards(rq *web.Request) *web.Problem {
	shards, p := readNumber(rq, "shards", math.MinInt64, math.MaxInt64) // the cluster says which it can have
	if p != nil {
		return p
	}
	if rq.DryRun {
		needs, err := rq.Core.Cluster.PreviewShards(rq.Base, int(shards))
		return answer(rq, 200, needs, err)
	}
	return answer(rq, 202, map[string]int64{"shards": shards}, rq.Core.Cluster.SetShards(rq.Base, int(shards)))
}

// readNumber reads a body with one number.
func readNumber(rq *web.Request, name string, least, most int64) (n int64, p *web.Problem) {
	r, given := rq.Reader(), false
	r.Body([]string{name}, func(string) { n, given = r.Ranged(name, least, most), true })
	if r.Err() == nil && !given {
		r.Reject(web.Bad(web.BadRequest, name+": is missing"))
	}
	return n, r.Problem()
}

// Finalize ends an upgrade.
func Finalize(rq *web.Request) *web.Problem {
	level, err := rq.Core.Cluster.Finalize(rq.Base)
	return answer(rq, 200, map[string]feature.Level{"feature_level": level}, err)
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

func changedNode(rq *web.Request, status int, state backend.NodeState, err error) *web.Problem {
	return answer(rq, status, map[string]string{"name": rq.NodeName, "state": string(state)}, err)
}

// answer answers with a value, unless the cluster has refused.
func answer(rq *web.Request, status int, v any, err error) *web.Problem {
	if err != nil {
		return fault(rq, err)
	}
	return rq.Value(status, v)
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
		return web.Fail(409, web.NotDrained, err.Error()+"; ?force=true removes it as it is")
	case errors.Is(err, backend.ErrMajority):
		return web.Fail(409, web.NotDrained, err.Error()+": bring back the nodes that are down, with their data directories, and wait until all shards are ok; "+
			"if these are gone for good, ?accept_loss=true removes the node, and what only the lost replicas had is lost")
	case errors.Is(err, backend.ErrBadShards):
		return web.Fail(422, web.BadShards, err.Error())
	case errors.Is(err, backend.ErrResharding):
		return web.Fail(409, "busy", err.Error()+"; GET /v1/cluster shows how far it is")
	case errors.Is(err, timer.ErrNoLeader):
		return web.Fail(503, "no_leader", "the meta group has no leader now, and nothing was changed: most of its nodes must be up. "+
			"Try again in a moment; if that does not help, start the nodes that are down, with their data directories (carillon ctl doctor names them)")
	case errors.Is(err, backend.ErrNoOtherNode):
		return web.Fail(409, web.NotDrained, err.Error())
	}
	return web.Fault(err)
}
