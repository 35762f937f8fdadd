package api

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"carillon/timer"
	"carillon/timer/recurrence"
	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

const clusterPath = "/v1/cluster"

func TestClusterView(t *testing.T) {
	h := newHarness(t)
	h.do("GET", clusterPath, "").want(200).has(
		"cluster_id", `"c0ffee"`, "version", `"test"`, "healthy", "true", "replicas", "2",
		"nodes.0", `{"clock_offset_ms":-3,"http":"127.0.0.1:7700","leads":2,"name":"n1","replicas":2,"state":"alive","unfit":"its disk is \"slow\"","version":"test"}`,
		"nodes.1.clock_offset_ms", "0",
		"nodes.2", `{"leads":0,"name":"n3","replicas":1,"state":"down"}`,
		"shards.0", `{"epoch":4,"leader":"n1","replicas":["n1","n2"],"shard":1,"state":"ok"}`,
		"shards.1", `{"epoch":1,"replicas":["n3"],"shard":2,"state":"no_quorum"}`,
	)
	h.do("HEAD", clusterPath, "").want(200)
	// A node that has not found its cluster yet still answers.
	h.engine.view = backend.ClusterView{Version: "test"}
	if r := h.do("GET", clusterPath, "").want(200); r.body != `{"version":"test","tzdata":"`+recurrence.Version+`","healthy":false,"nodes":[],"shards":[]}` {
		t.Error(r.body)
	}
}

func TestShardView(t *testing.T) {
	h := newHarness(t)
	h.do("GET", clusterPath+"/shards/1", "").want(200).has(
		"shard", "1", "leader", `"n1"`, "epoch", "4", "replicas", `["n1","n2"]`, "state", `"ok"`, "term", "7", "applied", "1099511627776", "timers", "12", "hash", `"00000000c0ffee00"`)
	h.do("GET", clusterPath+"/shards/2", "").want(200).has("shard", "2", "leader", "", "term", "", "applied", "", "timers", "", "hash", "")
	for _, n := range []string{"0", "3", "65536", "4294967297", "9223372036854775807"} {
		h.do("GET", clusterPath+"/shards/"+n, "").problem(404, web.NotFound)
	}
	for _, n := range []string{"-1", "01", "x", "1.0", "", "99999999999999999999"} {
		h.do("GET", clusterPath+"/shards/"+n, "").problem(400, web.BadRequest)
	}
	h.do("GET", clusterPath+"/shards", "").problem(405, "method_not_allowed") // POST lets their number grow
}

// TestShardThatIsYetToBeMade: of one that a growth has ordered and not yet made, the 404 says so.
func TestShardThatIsYetToBeMade(t *testing.T) {
	h := newHarness(t)
	h.engine.view.Resharding = &backend.ReshardingView{From: 2, To: 8, Done: 1, Shard: 2}
	for n, want := range map[string]string{
		"8": "there is no such shard yet: their number grows from 2 to 8, and 1 of 6 new shards are made; GET /v1/cluster shows how far it is",
		"9": "there is no such shard",
	} {
		r := h.do("GET", clusterPath+"/shards/"+n, "")
		r.problem(404, web.NotFound).has("detail", strconv.Quote(want))
	}
}

// TestShardViewOfATenant: what a shard holds is of every topic, and none of a token's business that
// reaches only some.
func TestShardViewOfATenant(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	authFile(t, path, `tenant read "shop.*"`, `reader read "*"`)
	auth, err := LoadAuth(path)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, func(c *Config) { c.Auth = auth })
	h.do("GET", clusterPath+"/shards/1", "", "Authorization: Bearer tenant").want(200).has("leader", `"n1"`, "state", `"ok"`, "term", "", "applied", "", "timers", "", "hash", "")
	h.do("GET", clusterPath+"/shards/1", "", "Authorization: Bearer reader").want(200).has("timers", "12")
}

func TestNodesAreDrainedResumedRemoved(t *testing.T) {
	h := newHarness(t)
	n2 := clusterPath + "/nodes/n2"
	h.do("DELETE", n2, "").problem(409, web.NotDrained)
	h.do("POST", n2+"/drain", "").want(202).has("name", `"n2"`, "state", `"draining"`)
	h.do("POST", n2+"/drain", "{}").want(202).has("state", `"draining"`)
	h.do("POST", n2+"/resume", "").want(200).has("name", `"n2"`, "state", `"alive"`)
	h.engine.view.Nodes[1].State = backend.NodeDrained
	h.do("POST", n2+"/drain", "").want(202).has("state", `"drained"`)
	h.do("DELETE", n2+"?force=false", "").want(200).has("name", `"n2"`, "state", `"left"`)
	h.do("DELETE", n2, "").problem(404, web.NotFound)
	h.do("DELETE", clusterPath+"/nodes/n1?force=true", "").want(200)
	h.do("POST", clusterPath+"/nodes/n3/resume", "").want(200).has("state", `"down"`)
	n3 := clusterPath + "/nodes/n3"
	if r := h.do("DELETE", n3+"?force=true", ""); !strings.Contains(r.body, "?accept_loss=true") {
		t.Errorf("it does not say what to do: %s", r.body)
	} else {
		r.problem(409, web.NotDrained)
	}
	h.do("DELETE", n3+"?accept_loss=perhaps", "").problem(400, web.BadRequest)
	h.do("DELETE", n3+"?accept_loss=true", "").want(200)

	for _, target := range []string{"/drain", "/resume"} {
		h.do("POST", n2+target, "").problem(404, web.NotFound)
		h.do("POST", clusterPath+"/nodes/-/"+target[1:], "").problem(400, web.BadName)
		h.do("POST", clusterPath+"/nodes/"+strings.Repeat("n", 64)+target, "").problem(400, web.BadName)
		h.do("POST", n2+target, `{"x":1}`).problem(400, web.UnknownField)
	}
	h.do("DELETE", n2+"?force=maybe", "").problem(400, web.BadRequest)
	h.do("DELETE", n2+"?forced=true", "").problem(400, web.BadRequest)
	h.do("GET", n2, "").problem(405, "method_not_allowed")
}

func TestReplicasAreSet(t *testing.T) {
	h := newHarness(t)
	path := clusterPath + "/replicas"
	h.do("PUT", path, `{"replicas":3}`).want(202).has("replicas", "3")
	h.do("GET", clusterPath, "").want(200).has("replicas", "3")
	for _, body := range []string{`{"replicas":0}`, `{"replicas":8}`, `{"replicas":-1}`, `{"replicas":"3"}`, `{"replicas":2.5}`, `{"replicas":null}`, `{}`} {
		h.do("PUT", path, body).problem(400, web.BadRequest)
	}
	h.do("PUT", path, `{"replica":3}`).problem(400, web.UnknownField)
	h.do("PUT", path, `{"replicas":3`).problem(400, web.BadJSON)
	h.do("PUT", path, `{"replicas":3,"replicas":4}`).problem(400, web.BadJSON)
	h.do("GET", path, "").problem(405, "method_not_allowed")
	h.do("GET", clusterPath, "").want(200).has("replicas", "3")
	h.engine.fakeCluster.err = timer.ErrNoLeader
	h.do("PUT", path, `{"replicas":3}`).problem(503, "no_leader")
}

// TestShardsAreSet: the number of shards grows to a multiple, one growth at a time, and the view
// has how far it is. A dry run changes nothing.
func TestShardsAreSet(t *testing.T) {
	h := newHarness(t)
	path := clusterPath + "/shards"
	h.do("GET", clusterPath, "").want(200).has("shards_total", "2", "resharding", "")
	h.do("POST", path+"?dry_run=true", `{"shards":4}`).want(200).has("bytes", "1099511627776", "memory_bytes", "1048576", "lasting_memory_bytes", "2097152", "moves", "5")
	h.do("POST", path+"?dry_run=true", `{"shards":2}`).problem(422, web.BadShards)
	for _, n := range []string{"0", "-4", "2", "3", "4097", "1073741825", "2147483648", "-2147483649", "99999999999"} { // one bound: the cluster's
		h.do("POST", path, `{"shards":`+n+`}`).problem(422, web.BadShards)
	}
	for _, body := range []string{`{"shards":99999999999999999999}`, `{"shards":"4"}`, `{"shards":4.5}`, `{"shards":null}`, `{}`} {
		h.do("POST", path, body).problem(400, web.BadRequest)
	}
	h.do("POST", path, `{"shard":4}`).problem(400, web.UnknownField)
	h.do("POST", path+"?dry_run=perhaps", `{"shards":4}`).problem(400, web.BadRequest)
	h.do("POST", path, `{"shards":6}`).problem(422, web.BadShards)
	h.do("GET", path, "").problem(405, "method_not_allowed")
	h.do("GET", clusterPath, "").want(200).has("shards_total", "2", "resharding", "")
	h.do("POST", path, `{"shards":4}`).want(202).has("shards", "4")
	h.do("POST", path, `{"shards":8}`).problem(409, "busy")
	h.do("GET", clusterPath, "").want(200).has("shards_total", "4", "resharding", `{"done":0,"from":2,"shard":1,"to":4}`)
	h.engine.fakeCluster.view.Resharding.WaitsFor = backend.WaitsForMajority
	h.do("GET", clusterPath, "").want(200).has("resharding.waits_for", `"majority"`)
	h.engine.fakeCluster.err = timer.ErrFeatureLevel
	h.do("POST", path, `{"shards":4}`).problem(409, "feature_level")
}

// TestMovesAreShown: the view has what moves and what waits, and for which nodes.
func TestMovesAreShown(t *testing.T) {
	h := newHarness(t)
	h.do("GET", clusterPath, "").want(200).has("moves", "")
	h.engine.fakeCluster.view.Moves = &backend.MovesView{UnderWay: 9, Bytes: 1 << 40, Waiting: 7, Repairs: 3}
	h.do("GET", clusterPath, "").want(200).has("moves", `{"bytes":1099511627776,"repairs":3,"under_way":9,"waiting":7}`)
	h.engine.fakeCluster.view.Moves.AtLimit, h.engine.fakeCluster.view.Moves.WaitsFor = []string{"n1", "n4"}, []string{"n2"}
	h.do("GET", clusterPath, "").want(200).has("moves.at_limit", `["n1","n4"]`, "moves.waits_for", `["n2"]`)
}

// TestFinalize: an upgrade shows in the view until it is finalized; that is refused with the reason
// where a node does not know the level, and changes nothing where there is no upgrade.
func TestFinalize(t *testing.T) {
	h := newHarness(t)
	path := clusterPath + "/finalize"
	h.engine.fakeCluster.view.Level = 2
	h.do("POST", path, "").want(200).has("feature_level", "2")
	h.engine.fakeCluster.view.Upgrade = &backend.UpgradeView{Level: 3, Lacking: []string{"n1", "n2"}}
	h.do("GET", clusterPath, "").want(200).has("feature_level", "2", "upgrade", `{"feature_level":3,"lacking":["n1","n2"]}`)
	h.engine.fakeCluster.err = fmt.Errorf("%w: feature level 3 is not understood by n1 (release v1, level 2)", timer.ErrFeatureLevel)
	if r := h.do("POST", path, ""); !strings.Contains(r.body, "n1 (release v1, level 2)") {
		t.Errorf("it does not name the node: %s", r.body)
	} else {
		r.problem(409, "feature_level")
	}
	h.engine.fakeCluster.err = nil
	h.engine.fakeCluster.view.Upgrade.Lacking = nil
	h.do("GET", clusterPath, "").want(200).has("upgrade", `{"feature_level":3,"lacking":[]}`)
	h.do("POST", path, `{}`).want(200).has("feature_level", "3")
	if _, there := h.do("GET", clusterPath, "").want(200).has("feature_level", "3").json()["upgrade"]; there {
		t.Error("an upgrade that is finalized is shown as one that is not")
	}
	h.do("POST", path, `{"level":4}`).problem(400, web.UnknownField)
	h.do("GET", path, "").problem(405, "method_not_allowed")
}

// The errors of a change of the cluster, and the answers to the client.
func TestClusterFaults(t *testing.T) {
	h := newHarness(t)
	for _, tt := range []struct {
		err    error
		status int
		code   string
	}{
		{backend.ErrUnknownNode, 404, web.NotFound},
		{backend.ErrNotDrained, 409, web.NotDrained},
		{backend.ErrNoOtherNode, 409, web.NotDrained},
		{backend.ErrMajority, 409, web.NotDrained},
		{timer.ErrNoLeader, 503, "no_leader"},
		{timer.ErrUnknown, 503, web.Unavailable},
		{timer.ErrRecovering, 503, web.Unavailable},
		{errors.New("inner detail"), 503, web.Unavailable},
	} {
		h.engine.fakeCluster.err = tt.err
		for _, r := range []*reply{
			h.do("POST", clusterPath+"/nodes/n1/drain", ""), h.do("POST", clusterPath+"/nodes/n1/resume", ""), h.do("DELETE", clusterPath+"/nodes/n1", ""),
		} {
			if r.problem(tt.status, tt.code); strings.Contains(r.body, "inner detail") {
				t.Errorf("%v shows: %s", tt.err, r.body)
			}
			if meta := "the meta group has no leader now"; strings.Contains(r.body, meta) != (tt.code == "no_leader") {
				t.Errorf("%v: %s", tt.err, r.body)
			}
		}
	}
}

// A shard without a leader: every read and change says so, and when to try again.
func TestNoLeader(t *testing.T) {
	h := newHarness(t)
	h.do("POST", timersPath, `{"id":"a","delay":"1h",`+cb+`}`).want(201)
	h.engine.err = fmt.Errorf("%w: node 7 may", timer.ErrNoLeader) // a hint between nodes
	for _, r := range []*reply{
		h.do("GET", timersPath+"/a", ""), h.do("GET", timersPath, ""), h.do("GET", orders, ""), h.do("GET", orders+"/dead", ""),
		h.do("POST", timersPath, `{"id":"b","delay":"1h",`+cb+`}`), h.do("DELETE", timersPath+"/a", ""), h.do("POST", orders+"/pause", ""),
	} {
		if r.problem(503, "no_leader"); r.header.Get("Retry-After") == "" || strings.Contains(r.body, "node 7") {
			t.Errorf("does not say when to try again, or more than is the client's: %s", r.body)
		}
	}
	h.do("POST", batches, `{"ops":[{"op":"cancel","id":"a"}]}`).want(200).has("results.0.status", "503", "results.0.error.code", `"no_leader"`)
}

// A feature that a node of an older release in the cluster does not know is refused, and the answer
// says so.
func TestFeatureThatNotAllKnow(t *testing.T) {
	h := newHarness(t)
	h.engine.err = fmt.Errorf("%w: put needs feature level 9, they have agreed on 2", timer.ErrFeatureLevel)
	h.do("PUT", orders, `{}`).problem(409, "feature_level")
}

// One topic more than a cluster takes is a matter of quota, wherever the topic would have been
// made.
func TestTooManyTopics(t *testing.T) {
	h := newHarness(t)
	h.engine.err = timer.ErrTooManyTopics
	add := `{"id":"a","delay":"1h",` + cb + `}`
	h.do("PUT", orders, `{}`).problem(429, "quota")
	h.do("POST", timersPath, add).problem(429, "quota")
	h.do("PUT", timersPath+"/a", `{"delay":"1h",`+cb+`}`).problem(429, "quota")
	h.engine.calls = map[string]int{}
	op := `{"op":"add","delay":"1h",` + cb + `}`
	h.do("POST", batches, `{"ops":[`+op+`,`+op+`,{"op":"cancel","id":"x"},`+op+`]}`).want(200).has(
		"results.0.error.code", `"quota"`, "results.1.status", "429", "results.2.error.code", `"unknown_topic"`, "results.3.error.code", `"quota"`)
	if n := h.engine.calls["EnsureTopic"]; n != 1 {
		t.Errorf("the topic was asked for %d times, once would do", n)
	}
}
