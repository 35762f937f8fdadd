package api

import (
	"slices"

	"carillon/transport/api/cluster"
	"carillon/transport/api/consumers"
	"carillon/transport/api/deadletters"
	"carillon/transport/api/events"
	"carillon/transport/api/timers"
	"carillon/transport/api/topics"
	"carillon/transport/api/web"
)

// route is one thing that can be asked. Segments in braces are parameters; HEAD goes with GET.
type route struct {
	method, path string
	scope        web.Scope
	query        []string
	handle       func(*request) *web.Problem

	alone      bool // a node without its core answers, too, as on open routes
	everyTopic bool // only for tokens that reach every topic
	large      bool // the answer may be
	// A change of timers that counts as one against a quota; of those of one timer each is counted
	// when it is read.
	change      bool
	audit       string // the name of the change in the audit log; "" for reads
	object      string // what it changes, for that log, where the path has no topic and no node
	named       bool   // takes an Idempotency-Key
	conditional bool   // takes If-Match (and PUT If-None-Match: *)
	versioned   bool   // takes If-Match with a topic's ETag (and PUT If-None-Match: *)
	body        bodyRule

	number int // in RouteNames
}

// RouteNames are the calls that there are, as "METHOD path", by the number that Config.Observe
// gets. The first is of requests that are for none of them.
func RouteNames() []string {
	names := make([]string, 1+len(routes))
	names[0] = "none"
	for i := range routes {
		names[routes[i].number] = routes[i].method + " " + routes[i].path
	}
	return names
}

// on makes a handler of what a resource does with a request.
func on(f func(*web.Request) *web.Problem) func(*request) *web.Problem {
	return func(rq *request) *web.Problem { return f(&rq.Request) }
}

func numbered(list []route) []route {
	for i := range list {
		list[i].number = 1 + i
	}
	return list
}

// bodyRule is which body a route takes.
type bodyRule uint8

const (
	noBody    bodyRule = iota
	emptyBody          // none, or an empty object
	maybeBody          // JSON, or none for the defaults
	jsonBody
	batchBody // JSON or NDJSON, up to the batch limit
)

var listParams = []string{"state", "due_from", "due_to", "label", "id_prefix", "limit", "cursor", "payload"}
var historyParams = []string{"id", "from", "to", "state", "limit", "cursor"}
var eventParams = []string{"topic", "label", "kind"}
var deadParams = []string{"reason", "from", "to", "label", "limit", "cursor"}

var forceParams = []string{"force"}
var dryRunParams = []string{"dry_run"}
var policyParams = []string{"force", "dry_run"}

const timerPath = "/v1/topics/{topic}/timers/{id}"

// routes is all that this server answers.
var routes = numbered([]route{
	{method: "GET", path: "/healthz", scope: web.ScopeOpen, handle: (*request).healthz},
	{method: "GET", path: "/readyz", scope: web.ScopeOpen, handle: (*request).readyz},
	{method: "GET", path: "/metrics", scope: web.ScopeMetrics, alone: true, everyTopic: true, handle: (*request).metrics},
	{method: "GET", path: "/v1/destinations", scope: web.ScopeCluster, handle: on(cluster.Destinations), query: []string{"state", "limit", "cursor"}},

	{method: "GET", path: "/v1/topics", scope: web.ScopeRead, handle: on(topics.List), large: true, query: []string{"limit", "cursor", "prefix", "counts"}},
	{method: "GET", path: "/v1/topics/{topic}", scope: web.ScopeRead, handle: on(topics.Read)},
	{method: "PUT", path: "/v1/topics/{topic}", scope: web.ScopeAdmin, handle: on(topics.Put), audit: "topic.put", body: jsonBody, query: policyParams, versioned: true},
	{method: "PATCH", path: "/v1/topics/{topic}", scope: web.ScopeAdmin, handle: on(topics.Patch), audit: "topic.patch", body: jsonBody, query: policyParams, versioned: true},
	{method: "DELETE", path: "/v1/topics/{topic}", scope: web.ScopeAdmin, handle: on(topics.Delete), audit: "topic.delete", query: forceParams, versioned: true},
	{method: "POST", path: "/v1/topics/{topic}/pause", scope: web.ScopeAdmin, handle: on(topics.Pause), audit: "topic.pause", body: emptyBody},
	{method: "POST", path: "/v1/topics/{topic}/resume", scope: web.ScopeAdmin, handle: on(topics.Resume), audit: "topic.resume", body: emptyBody},

	{method: "POST", path: "/v1/topics/{topic}/secrets/rotate", scope: web.ScopeAdmin, handle: on(topics.RotateSecret), audit: "topic.secrets.rotate", body: maybeBody},
	{method: "POST", path: "/v1/topics/{topic}/secrets/finish", scope: web.ScopeAdmin, handle: on(topics.FinishSecrets), audit: "topic.secrets.finish", body: maybeBody},
	{method: "POST", path: "/v1/topics/{topic}/signing-keys/rotate", scope: web.ScopeAdmin, handle: on(topics.RotateKey), audit: "topic.signing_keys.rotate", body: maybeBody},
	{method: "POST", path: "/v1/topics/{topic}/signing-keys/finish", scope: web.ScopeAdmin, handle: on(topics.FinishKeys), audit: "topic.signing_keys.finish", body: maybeBody},

	{method: "POST", path: "/v1/topics/{topic}/timers", scope: web.ScopeAdd, handle: on(timers.Add), query: dryRunParams, audit: "timer.add", large: true, named: true, body: jsonBody},
	{method: "GET", path: "/v1/timers", scope: web.ScopeRead, handle: on(timers.ListAll), large: true, query: slices.Concat([]string{"id"}, listParams)},
	{method: "GET", path: "/v1/topics/{topic}/timers", scope: web.ScopeRead, handle: on(timers.List), large: true, query: listParams},
	{method: "GET", path: timerPath, scope: web.ScopeRead, handle: on(timers.Read), large: true, query: []string{"next"}},
	{method: "PUT", path: timerPath, scope: web.ScopeAdd, handle: on(timers.Put), query: dryRunParams, audit: "timer.put", large: true, body: jsonBody, conditional: true},
	{method: "PATCH", path: timerPath, scope: web.ScopeAdd, handle: on(timers.Patch), query: dryRunParams, audit: "timer.patch", large: true, body: jsonBody, conditional: true},
	{method: "DELETE", path: timerPath, scope: web.ScopeCancel, handle: on(timers.Cancel), audit: "timer.cancel", conditional: true},
	{method: "POST", path: timerPath + "/fire", scope: web.ScopeAdd, handle: on(timers.Fire), audit: "timer.fire", large: true, body: emptyBody, conditional: true},
	{method: "POST", path: "/v1/topics/{topic}/batch", scope: web.ScopeChange, handle: on(timers.Batch), audit: "batch", large: true, query: []string{"brief"}, body: batchBody},

	{method: "POST", path: timerPath + "/pause", scope: web.ScopeAdd, handle: on(timers.Pause), audit: "timer.pause", large: true, body: emptyBody, conditional: true},
	{method: "POST", path: timerPath + "/resume", scope: web.ScopeAdd, handle: on(timers.Resume), audit: "timer.resume", large: true, body: emptyBody, conditional: true},
	{method: "POST", path: "/v1/topics/{topic}/cancel", scope: web.ScopeCancel, handle: on(timers.CancelSelected), query: dryRunParams, audit: "timers.cancel", change: true, body: jsonBody},
	{method: "POST", path: "/v1/topics/{topic}/pause-timers", scope: web.ScopeAdd, handle: on(timers.PauseSelected), query: dryRunParams, audit: "timers.pause", change: true, body: jsonBody},
	{method: "POST", path: "/v1/topics/{topic}/resume-timers", scope: web.ScopeAdd, handle: on(timers.ResumeSelected), query: dryRunParams, audit: "timers.resume", change: true, body: jsonBody},
	{method: "POST", path: "/v1/topics/{topic}/reschedule", scope: web.ScopeAdd, handle: on(timers.RescheduleSelected), query: dryRunParams, audit: "timers.reschedule", change: true, body: jsonBody},

	{method: "POST", path: "/v1/topics/{topic}/pull", scope: web.ScopeAdd, handle: on(consumers.Pull), audit: auditPull, change: true, large: true, body: maybeBody},
	{method: "POST", path: "/v1/ack", scope: web.ScopeAdd, handle: on(consumers.Ack), audit: "lease.ack", object: "leases", body: jsonBody},
	{method: "POST", path: "/v1/nack", scope: web.ScopeAdd, handle: on(consumers.Nack), audit: "lease.nack", object: "leases", body: jsonBody},
	{method: "POST", path: "/v1/extend", scope: web.ScopeAdd, handle: on(consumers.Extend), audit: "lease.extend", object: "leases", body: jsonBody},

	{method: "GET", path: "/v1/topics/{topic}/dead", scope: web.ScopeRead, handle: on(deadletters.List), large: true, query: deadParams},
	{method: "POST", path: "/v1/topics/{topic}/dead/redrive", scope: web.ScopeAdmin, handle: on(deadletters.Redrive), query: dryRunParams, audit: "dead.redrive", change: true, body: jsonBody},
	{method: "POST", path: "/v1/topics/{topic}/dead/purge", scope: web.ScopeAdmin, handle: on(deadletters.Purge), query: dryRunParams, audit: "dead.purge", change: true, body: jsonBody},

	{method: "GET", path: "/v1/topics/{topic}/history", scope: web.ScopeRead, handle: on(timers.History), large: true, query: historyParams},

	{method: "GET", path: "/v1/events", scope: web.ScopeRead, handle: on(events.Watch), query: eventParams},
	{method: "GET", path: "/v1/due", scope: web.ScopeRead, handle: on(timers.CountDue), query: []string{"topic", "until", "buckets"}},
	{method: "POST", path: "/v1/backup", scope: web.ScopeCluster, handle: on(cluster.Backup), audit: "cluster.backup", object: "cluster", body: emptyBody},

	{method: "GET", path: "/v1/clock", scope: web.ScopeRead, handle: on(cluster.ReadClock)},
	{method: "POST", path: "/v1/clock", scope: web.ScopeCluster, handle: on(cluster.MoveClock), audit: "clock.move", object: "cluster", body: jsonBody},

	{method: "GET", path: "/v1/cluster", scope: web.ScopeRead, alone: true, handle: on(cluster.Read)},
	{method: "GET", path: "/v1/cluster/stats", scope: web.ScopeCluster, handle: on(cluster.Stats)},
	{method: "PUT", path: "/v1/cluster/replicas", scope: web.ScopeCluster, handle: on(cluster.SetReplicas), audit: "cluster.replicas", object: "cluster/replicas", body: jsonBody},
	{method: "POST", path: "/v1/cluster/shards", scope: web.ScopeCluster, handle: on(cluster.SetShards), audit: "cluster.shards", object: "cluster/shards", body: jsonBody, query: []string{"dry_run"}},
	{method: "POST", path: "/v1/cluster/finalize", scope: web.ScopeCluster, handle: on(cluster.Finalize), audit: "cluster.finalize", object: "cluster", body: emptyBody},
	{method: "GET", path: "/v1/cluster/shards/{n}", scope: web.ScopeRead, handle: on(cluster.Shard)},
	{method: "POST", path: "/v1/cluster/nodes/{name}/drain", scope: web.ScopeCluster, handle: on(cluster.Drain), audit: "node.drain", body: emptyBody},
	{method: "POST", path: "/v1/cluster/nodes/{name}/resume", scope: web.ScopeCluster, handle: on(cluster.Resume), audit: "node.resume", body: emptyBody},
	{method: "DELETE", path: "/v1/cluster/nodes/{name}", scope: web.ScopeCluster, handle: on(cluster.Remove), audit: "node.remove", query: []string{"force", "accept_loss"}},
})

func (rq *request) healthz() *web.Problem {
	return rq.JSON(200, append(web.AppendString(append(rq.Out(), `{"status":"ok","version":`...), rq.s.cfg.Version), '}'))
}

func (rq *request) readyz() *web.Problem {
	if err := rq.Engine.Ready(); err != nil {
		return web.Fail(503, web.Unavailable, "not ready: "+err.Error())
	}
	return rq.JSON(200, append(rq.Out(), `{"status":"ready"}`...))
}

func (rq *request) metrics() *web.Problem {
	if rq.s.cfg.Metrics == nil {
		return web.Fail(404, web.NotFound, "metrics are off")
	}
	if err := rq.s.cfg.Metrics(rq.Ctx, rq.Who.May(web.ScopeCluster)); err != nil {
		return web.Fault(err)
	}
	return nil
}
