package api

// route is one thing that can be asked. Segments in braces are parameters; HEAD goes with GET.
type route struct {
	method, path string
	scope        scope
	query        []string
	handle       func(*request) *problem

	alone      bool // a node without its core answers, too, as on open routes
	everyTopic bool // only for tokens that reach every topic
	large      bool // the answer may be
	// A change of timers that counts as one against a quota; of those of one timer each is counted
	// when it is read.
	change      bool
	audit       string // the name of the change in the audit log; "" for reads
	named       bool   // takes an Idempotency-Key
	conditional bool   // takes If-Match (and PUT If-None-Match: *)
	versioned   bool   // takes If-Match with a topic's ETag
	body        bodyRule

	number int // in RouteNames
}

// RouteNames are the calls that there are, as "METHOD path", by the number that Config.Observe is
// told. The first is of requests that are for none of them.
func RouteNames() []string {
	names := make([]string, 1+len(routes))
	names[0] = "none"
	for i := range routes {
		names[routes[i].number] = routes[i].method + " " + routes[i].path
	}
	return names
}

func numbered(list []route) []route {
	for i := range list {
		list[i].number = 1 + i
	}
	return list
}

// bodyRule says which body a route takes.
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

const timerPath = "/v1/topics/{topic}/timers/{id}"

// routes is all that this server answers.
var routes = numbered([]route{
	{method: "GET", path: "/healthz", scope: scopeOpen, handle: (*request).healthz},
	{method: "GET", path: "/readyz", scope: scopeOpen, handle: (*request).readyz},
	{method: "GET", path: "/metrics", scope: scopeMetrics, alone: true, everyTopic: true, handle: (*request).metrics},
	{method: "GET", path: "/v1/destinations", scope: scopeCluster, handle: (*request).listDestinations, query: []string{"state", "limit", "cursor"}},

	{method: "GET", path: "/v1/topics", scope: scopeRead, handle: (*request).listTopics, large: true, query: []string{"limit", "cursor", "prefix", "counts"}},
	{method: "GET", path: "/v1/topics/{topic}", scope: scopeRead, handle: (*request).readTopic},
	{method: "PUT", path: "/v1/topics/{topic}", scope: scopeAdmin, handle: (*request).putTopic, audit: "topic.put", body: jsonBody, query: forceParams, versioned: true},
	{method: "PATCH", path: "/v1/topics/{topic}", scope: scopeAdmin, handle: (*request).patchTopic, audit: "topic.patch", body: jsonBody, query: forceParams, versioned: true},
	{method: "DELETE", path: "/v1/topics/{topic}", scope: scopeAdmin, handle: (*request).deleteTopic, audit: "topic.delete", query: forceParams, versioned: true},
	{method: "POST", path: "/v1/topics/{topic}/pause", scope: scopeAdmin, handle: (*request).pauseTopic, audit: "topic.pause", body: emptyBody},
	{method: "POST", path: "/v1/topics/{topic}/resume", scope: scopeAdmin, handle: (*request).resumeTopic, audit: "topic.resume", body: emptyBody},

	{method: "POST", path: "/v1/topics/{topic}/secrets/rotate", scope: scopeAdmin, handle: (*request).rotateSecret, audit: "topic.secrets.rotate", body: maybeBody},
	{method: "POST", path: "/v1/topics/{topic}/secrets/finish", scope: scopeAdmin, handle: (*request).finishRotation, audit: "topic.secrets.finish", body: maybeBody},
	{method: "POST", path: "/v1/topics/{topic}/signing-keys/rotate", scope: scopeAdmin, handle: (*request).rotateSigningKey, audit: "topic.signing_keys.rotate", body: maybeBody},
	{method: "POST", path: "/v1/topics/{topic}/signing-keys/finish", scope: scopeAdmin, handle: (*request).finishKeyRotation, audit: "topic.signing_keys.finish", body: maybeBody},

	{method: "POST", path: "/v1/topics/{topic}/timers", scope: scopeAdd, handle: (*request).addTimer, query: dryRunParams, audit: "timer.add", large: true, named: true, body: jsonBody},
	{method: "GET", path: "/v1/topics/{topic}/timers", scope: scopeRead, handle: (*request).listTimers, large: true, query: listParams},
	{method: "GET", path: timerPath, scope: scopeRead, handle: (*request).readTimer, large: true, query: []string{"next"}},
	{method: "PUT", path: timerPath, scope: scopeAdd, handle: (*request).putTimer, query: dryRunParams, audit: "timer.put", large: true, body: jsonBody, conditional: true},
	{method: "PATCH", path: timerPath, scope: scopeAdd, handle: (*request).patchTimer, query: dryRunParams, audit: "timer.patch", large: true, body: jsonBody, conditional: true},
	{method: "DELETE", path: timerPath, scope: scopeCancel, handle: (*request).cancelTimer, audit: "timer.cancel", conditional: true},
	{method: "POST", path: timerPath + "/fire", scope: scopeAdd, handle: (*request).fireTimer, audit: "timer.fire", large: true, body: emptyBody, conditional: true},
	{method: "POST", path: "/v1/topics/{topic}/batch", scope: scopeChange, handle: (*request).batch, audit: "batch", large: true, query: []string{"brief"}, body: batchBody},

	{method: "POST", path: "/v1/topics/{topic}/cancel", scope: scopeCancel, handle: (*request).cancelTimers, query: dryRunParams, audit: "timers.cancel", change: true, body: jsonBody},
	{method: "POST", path: "/v1/topics/{topic}/reschedule", scope: scopeAdd, handle: (*request).rescheduleTimers, query: dryRunParams, audit: "timers.reschedule", change: true, body: jsonBody},

	{method: "POST", path: "/v1/topics/{topic}/pull", scope: scopeAdd, handle: (*request).pullTimers, audit: auditPull, change: true, large: true, body: maybeBody},
	{method: "POST", path: "/v1/ack", scope: scopeAdd, handle: (*request).ackReceipts, audit: "lease.ack", body: jsonBody},
	{method: "POST", path: "/v1/nack", scope: scopeAdd, handle: (*request).nackReceipts, audit: "lease.nack", body: jsonBody},
	{method: "POST", path: "/v1/extend", scope: scopeAdd, handle: (*request).extendReceipts, audit: "lease.extend", body: jsonBody},

	{method: "GET", path: "/v1/topics/{topic}/dead", scope: scopeRead, handle: (*request).listDead, large: true, query: deadParams},
	{method: "POST", path: "/v1/topics/{topic}/dead/redrive", scope: scopeAdmin, handle: (*request).redriveDead, query: dryRunParams, audit: "dead.redrive", change: true, body: jsonBody},
	{method: "POST", path: "/v1/topics/{topic}/dead/purge", scope: scopeAdmin, handle: (*request).purgeDead, query: dryRunParams, audit: "dead.purge", change: true, body: jsonBody},

	{method: "GET", path: "/v1/topics/{topic}/history", scope: scopeRead, handle: (*request).listHistory, large: true, query: historyParams},

	{method: "GET", path: "/v1/events", scope: scopeRead, handle: (*request).watchEvents, query: eventParams},
	{method: "GET", path: "/v1/due", scope: scopeRead, handle: (*request).readDue, query: []string{"topic", "until", "buckets"}},
	{method: "POST", path: "/v1/backup", scope: scopeCluster, handle: (*request).backup, audit: auditBackup, body: emptyBody},

	{method: "GET", path: "/v1/cluster", scope: scopeRead, alone: true, handle: (*request).readCluster},
	{method: "GET", path: "/v1/cluster/stats", scope: scopeCluster, handle: (*request).readStats},
	{method: "PUT", path: "/v1/cluster/replicas", scope: scopeCluster, handle: (*request).setReplicas, audit: "cluster.replicas", body: jsonBody},
	{method: "POST", path: "/v1/cluster/finalize", scope: scopeCluster, handle: (*request).finalize, audit: auditFinalize, body: emptyBody},
	{method: "GET", path: "/v1/cluster/shards/{n}", scope: scopeRead, handle: (*request).readShard},
	{method: "POST", path: "/v1/cluster/nodes/{name}/drain", scope: scopeCluster, handle: (*request).drainNode, audit: "node.drain", body: emptyBody},
	{method: "POST", path: "/v1/cluster/nodes/{name}/resume", scope: scopeCluster, handle: (*request).resumeNode, audit: "node.resume", body: emptyBody},
	{method: "DELETE", path: "/v1/cluster/nodes/{name}", scope: scopeCluster, handle: (*request).removeNode, audit: "node.remove", query: []string{"force", "accept_loss"}},
})

func (rq *request) healthz() *problem {
	rq.json(200, append(appendString(append(rq.out(), `{"status":"ok","version":`...), rq.s.cfg.Version), '}'))
	return nil
}

func (rq *request) readyz() *problem {
	if err := rq.s.cfg.Engine.Ready(); err != nil {
		return fail(503, unavailable, "not ready: "+err.Error())
	}
	rq.json(200, append(rq.out(), `{"status":"ready"}`...))
	return nil
}

func (rq *request) metrics() *problem {
	if rq.s.cfg.Metrics == nil {
		return fail(404, notFound, "metrics are off")
	}
	if err := rq.s.cfg.Metrics(rq.ctx, rq.who.may(scopeCluster)); err != nil {
		return engineFault(err)
	}
	return nil
}
