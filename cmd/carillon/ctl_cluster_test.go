package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const threeNodes = `{"cluster_id":"c0ffee","version":"v1","healthy":false,"nodes":[` +
	`{"name":"n1","http":"127.0.0.1:7700","state":"alive","leads":2,"replicas":3,"version":"v1","silent_ms":1280,"clock_offset_ms":-3},` +
	`{"name":"n2","http":"127.0.0.1:7800","state":"draining","leads":1,"replicas":2,"version":"v1","unfit":"its clock is 1200 ms from the others' median","clock_offset_ms":0},` +
	`{"name":"n3\u001b[31m","state":"down","leads":0,"replicas":1,"silent_ms":95000}],"shards":[` +
	`{"shard":1,"leader":"n1","epoch":4,"replicas":["n1","n2"],"state":"ok"},` +
	`{"shard":2,"leader":"n2","epoch":9,"replicas":["n2","n1"],"state":"moving"},` +
	`{"shard":3,"epoch":1,"replicas":["n3"],"state":"no_quorum"}]}`

func TestCtlCluster(t *testing.T) {
	ok := func(bodies ...string) (all []reply) {
		for _, b := range bodies {
			all = append(all, reply{status: 200, body: b})
		}
		return all
	}
	accepted := reply{status: 202, body: `{"name":"n2","state":"draining"}`}
	replicas := []reply{{status: 202, body: `{"replicas":2}`}}
	twoReplicas := `{"version":"v1","healthy":true,"replicas":2,"nodes":[{"name":"n1","state":"alive"},{"name":"n2","state":"alive"},{"name":"n3","state":"drained"}],"shards":[` +
		`{"shard":1,"leader":"n1","epoch":4,"replicas":["n1","n2"],"state":"ok"}]}`
	shards := []reply{{status: 202, body: `{"shards":8}`}}
	growing := func(done int, more string) string {
		return fmt.Sprintf(`{"cluster_id":"c","shards_total":8,"resharding":{"from":4,"to":8,"done":%d%s},"nodes":[],"shards":[]}`, done, more)
	}
	stuck := growing(3, `,"shard":4,"waits_for":"majority"`)
	grown := `{"cluster_id":"c","shards_total":8,"nodes":[],"shards":[]}`
	waiting := strings.Replace(threeNodes, `"healthy":false`, `"healthy":false,"moves":{"under_way":0,"bytes":0,"waiting":2,"repairs":0,"waits_for":["n3"]}`, 1)
	drained := strings.Replace(threeNodes, `"draining"`, `"drained"`, 1)
	runCtl(t, []ctlCase{
		{
			name: "cluster", args: []string{"cluster"}, replies: ok(threeNodes), asked: []string{"GET /v1/cluster"},
			out: []string{
				"cluster c0ffee: not healthy\n",
				"NODE     STATE     LEADS  REPLICAS  HEARD       CLOCK  HTTP            VERSION\n",
				"n1       alive     2      3         1.3 s ago   -3 ms  127.0.0.1:7700  v1\n",
				"n2       draining  1      2         -           +0 ms  ",
				"n3·[31m  down      0      1         95.0 s ago  -\n",
				"\nn2 should not lead: its clock is 1200 ms from the others' median\n",
				"shards: 3: 1 moving, 1 no_quorum, 1 ok\n",
				"SHARD  STATE      LEADER  EPOCH  REPLICAS\n2      moving     n2      9      n2,n1\n3      no_quorum  -       1      n3\n",
			},
		},
		{
			name: "cluster that refuses adds", args: []string{"cluster"}, asked: []string{"GET /v1/cluster"},
			replies: ok(strings.NewReplacer(`"name":"n2",`, `"name":"n2","low_disk":true,`, `"state":"ok"}`, `"full":true,"state":"ok"}`).Replace(threeNodes)),
			out: []string{
				"\nn2 has little room on its disk: shards with a replica on it refuse adds\n", "\nshards: 3: 1 moving, 1 no_quorum, 1 ok\n1 shard is full and refuses adds, ",
				"SHARD  STATE      LEADER  EPOCH  REPLICAS\n1      ok, full   n1      4      n1,n2\n2      moving     n2",
			},
		},
		{
			name: "cluster --shards", args: []string{"cluster", "--shards"}, replies: ok(threeNodes), asked: []string{"GET /v1/cluster"},
			out: []string{"1      ok         n1      4      n1,n2\n"},
		},
		{
			name: "cluster with a suspect node", args: []string{"cluster"}, asked: []string{"GET /v1/cluster"},
			replies: ok(`{"cluster_id":"c0ffee","version":"v1","healthy":false,"nodes":[{"name":"n1","state":"alive","leads":2,"replicas":3},` +
				`{"name":"n2","state":"suspect","leads":1,"replicas":2,"silent_ms":2449}],"shards":[]}`),
			out: []string{"n2    suspect  ?      2 ", "\nn2 is suspect: it was last heard 2.4 s ago, and this is as of then\n"},
		},
		{
			name: "cluster with zones", args: []string{"cluster"}, replies: ok(strings.Replace(threeNodes, `"name":"n2",`, `"name":"n2","zone":"rack 7",`, 1)), asked: []string{"GET /v1/cluster"},
			out: []string{"HTTP            VERSION  ZONE\n", "  rack 7\n"},
		},
		{
			name: "healthy cluster of none", args: []string{"cluster"}, replies: ok(`{"version":"v1","healthy":true,"nodes":[],"shards":[]}`, "{}"), asked: []string{"GET /v1/cluster", "GET /readyz"},
			out: []string{"cluster not founded yet: healthy\n", "shards: 0\n"},
		},
		{
			name: "a node that waits for its cluster", args: []string{"cluster"}, asked: []string{"GET /v1/cluster", "GET /readyz"},
			replies: append(ok(`{"version":"v1","healthy":false,"nodes":[],"shards":[]}`), reply{status: 503, body: `{"title":"Not now","detail":"not ready: founding: 2 of 3 founders are here","code":"unavailable"}`}),
			out:     []string{"cluster not founded yet: not healthy\n", "\nnot ready: founding: 2 of 3 founders are here (503 unavailable)\n", "shards: 0\n"},
		},
		{name: "cluster --json", args: []string{"cluster", "--json"}, replies: ok(threeNodes), asked: []string{"GET /v1/cluster"}, out: []string{threeNodes + "\n"}},
		{
			name: "shard", args: []string{"shard", "7"}, replies: ok(`{"shard":7,"leader":"n1","epoch":4,"replicas":["n1"],"state":"ok","term":3,"applied":99,"timers":5}`),
			asked: []string{"GET /v1/cluster/shards/7"}, out: []string{"shard     7\n", "applied   99\n", `replicas  ["n1"]`},
		},
		{
			name: "shard that is not there", args: []string{"shard", "99"}, replies: []reply{{status: 404, body: `{"title":"Not found","detail":"there is no such shard","code":"not_found"}`}},
			asked: []string{"GET /v1/cluster/shards/99"}, err: []string{"there is no such shard (404 not_found)"}, code: exitFailure,
		},
		{name: "drain", args: []string{"drain", "n2"}, replies: []reply{accepted}, asked: []string{"POST /v1/cluster/nodes/n2/drain"}, out: []string{"n2: draining\n"}},
		{
			name: "drain and wait", args: []string{"drain", "n2", "--wait", "1m"}, replies: append([]reply{accepted}, ok(threeNodes, drained)...),
			asked: []string{"POST /v1/cluster/nodes/n2/drain", "GET /v1/cluster", "GET /v1/cluster"}, out: []string{"n2: drained\n"},
		},
		{
			name: "drain takes too long", args: []string{"drain", "n2", "--wait", "1ns"}, replies: append([]reply{accepted}, ok(waiting)...),
			asked: []string{"POST /v1/cluster/nodes/n2/drain", "GET /v1/cluster"},
			err:   []string{"n2 is draining with 2 replicas left after 1ns; the drain continues; moves: 0 under way, 2 wait: for n3 to be well or replaced\n"}, code: exitFailure,
		},
		{
			name: "drain of a node that is down", args: []string{"drain", "n2", "--wait", "1m"},
			replies: append([]reply{accepted}, ok(strings.Replace(threeNodes, `"draining"`, `"down"`, 1), strings.Replace(threeNodes, `"draining","leads":1,"replicas":2`, `"down","leads":0,"replicas":0`, 1))...),
			asked:   []string{"POST /v1/cluster/nodes/n2/drain", "GET /v1/cluster", "GET /v1/cluster"}, out: []string{"n2: drained\n"},
		},
		{
			name: "drain of a node that goes away", args: []string{"drain", "n9", "--wait", "1m"}, replies: append([]reply{accepted}, ok(threeNodes)...),
			asked: []string{"POST /v1/cluster/nodes/n9/drain", "GET /v1/cluster"}, err: []string{"n9 is no longer in the cluster"}, code: exitFailure,
		},
		{name: "resume", args: []string{"resume", "n2"}, replies: ok(`{"name":"n2","state":"alive"}`), asked: []string{"POST /v1/cluster/nodes/n2/resume"}, out: []string{"n2: alive\n"}},
		{name: "remove", args: []string{"remove", "n2"}, replies: ok(`{"name":"n2","state":"left"}`), asked: []string{"DELETE /v1/cluster/nodes/n2"}, out: []string{"n2: left\n"}},
		{name: "replicas", args: []string{"replicas", "2"}, replies: replicas, asked: []string{`PUT /v1/cluster/replicas {"replicas":2}`}, out: []string{"replicas: 2\n"}},
		{
			name: "replicas and wait", args: []string{"replicas", "2", "--wait", "1m"}, replies: append(replicas, ok(threeNodes, twoReplicas)...),
			asked: []string{`PUT /v1/cluster/replicas {"replicas":2}`, "GET /v1/cluster", "GET /v1/cluster"}, out: []string{"replicas: 2\n"},
		},
		{
			name: "replicas take too long", args: []string{"replicas", "2", "--wait", "1ns"}, replies: append(replicas, ok(waiting)...),
			asked: []string{`PUT /v1/cluster/replicas {"replicas":2}`, "GET /v1/cluster"},
			err:   []string{"3 of 3 shards do not have their replicas yet after 1ns; the change continues; moves: 0 under way, 2 wait: for n3 to be well or replaced\n"}, code: exitFailure,
		},
		{name: "shards", args: []string{"shards", "8"}, replies: shards, asked: []string{`POST /v1/cluster/shards {"shards":8}`}, out: []string{"shards: 8\n"}},
		{
			// A line a second.
			name: "shards and wait", args: []string{"shards", "8", "--wait"}, replies: append(shards, ok(append(append([]string{growing(1, ""), growing(2, "")}, slices.Repeat([]string{stuck}, 6)...), grown)...)...),
			asked: append([]string{`POST /v1/cluster/shards {"shards":8}`}, slices.Repeat([]string{"GET /v1/cluster"}, 9)...), out: []string{"1 of 4 new shards\n3 of 4 new shards; shard 4 has lost most of its replicas\nshards: 8\n"},
		},
		{
			name: "shards that grow already", args: []string{"shards", "8", "--wait"},
			replies: append([]reply{{status: 409, body: `{"title":"Busy","detail":"the number of shards is growing already, to 8","code":"busy"}`}}, ok(growing(1, ""), grown)...),
			asked:   []string{`POST /v1/cluster/shards {"shards":8}`, "GET /v1/cluster", "GET /v1/cluster"}, out: []string{"shards: 8\n"},
		},
		{
			name: "shards that are there", args: []string{"shards", "16", "--wait"},
			replies: append([]reply{{status: 409, body: `{"title":"Busy","detail":"the number of shards is growing already, to 8","code":"busy"}`}}, ok(growing(1, ""))...),
			asked:   []string{`POST /v1/cluster/shards {"shards":16}`, "GET /v1/cluster"}, err: []string{"grows to 8, not to 16"}, code: exitFailure,
		},
		{
			name: "shards and wait, by a token that may not read", args: []string{"shards", "8", "--wait"},
			replies: append(shards, reply{status: 403, body: `{"title":"No","detail":"this needs the scope read","code":"forbidden"}`}),
			asked:   []string{`POST /v1/cluster/shards {"shards":8}`, "GET /v1/cluster"}, err: []string{"this needs the scope read (403 forbidden)"}, code: exitFailure,
		},
		{
			name: "shards refused, by a token that may not read", args: []string{"shards", "6", "--wait"},
			replies: []reply{{status: 422, body: `{"title":"No","detail":"there are 4","code":"bad_shards"}`}, {status: 403, body: `{"title":"No","detail":"this needs the scope read","code":"forbidden"}`}},
			asked:   []string{`POST /v1/cluster/shards {"shards":6}`, "GET /v1/cluster"}, err: []string{"there are 4 (422 bad_shards)"}, code: exitFailure,
		},
		{
			name: "shards refused", args: []string{"shards", "6"}, replies: []reply{{status: 422, body: `{"title":"No","detail":"there are 4, and can be twice as many","code":"bad_shards"}`}},
			asked: []string{`POST /v1/cluster/shards {"shards":6}`}, err: []string{"there are 4, and can be twice as many (422 bad_shards)"}, code: exitFailure,
		},
		{
			name: "shards, dry run", args: []string{"shards", "8", "--dry-run"}, replies: ok(`{"bytes":1000,"memory_bytes":20,"lasting_memory_bytes":30,"moves":3}`),
			asked: []string{`POST /v1/cluster/shards?dry_run=true {"shards":8}`}, out: []string{"by all nodes: 1000\n", "divides a shard: 20\n", "new shards themselves: 30\n", "move afterwards: 3\n"},
		},
		{
			name: "cluster that grows", args: []string{"cluster"}, replies: ok(growing(1, "")), asked: []string{"GET /v1/cluster"},
			out: []string{"cluster c: not healthy, resharding\n", "their number grows from 4 to 8: 1 of 4 new shards\n"},
		},
		{
			name: "cluster in motion", args: []string{"cluster"}, asked: []string{"GET /v1/cluster"},
			replies: ok(`{"cluster_id":"c","moves":{"under_way":96,"bytes":183000000,"waiting":393,"repairs":12,"at_limit":["n1","n4"]},"nodes":[],"shards":[]}`),
			out:     []string{"moves: 96 under way, 183 MB, 393 wait: n1, n4 at the limit of what a node sends or receives; 12 of them repair shards\n"},
		},
		{
			name: "cluster that waits for a node", args: []string{"cluster"}, asked: []string{"GET /v1/cluster"},
			replies: ok(`{"cluster_id":"c","moves":{"under_way":0,"bytes":0,"waiting":7,"repairs":0,"waits_for":["n2"]},"nodes":[],"shards":[]}`),
			out:     []string{"moves: 0 under way, 7 wait: for n2 to be well or replaced\n"},
		},
		{
			name: "cluster that a node has joined", args: []string{"cluster"}, asked: []string{"GET /v1/cluster"},
			replies: ok(`{"cluster_id":"c","moves":{"under_way":0,"bytes":0,"waiting":7,"repairs":0},"nodes":[],"shards":[]}`),
			out:     []string{"moves: 0 under way, 7 wait: a node has just joined, and others may follow\n"},
		},
		{
			name: "upgrade", args: []string{"upgrade"}, asked: []string{"GET /v1/cluster"}, replies: ok(`{"feature_level":2,"upgrade":{"feature_level":3,"lacking":["n2"]},` +
				`"nodes":[{"name":"n1","state":"alive","version":"v2","feature_level":3},{"name":"n2","state":"down","version":"v1","feature_level":2}],"shards":[]}`),
			out: []string{
				"feature level 2; 3 when these run the newer release, too, and the upgrade is finalized: n2\n\n",
				"NODE  STATE  VERSION  FEATURE LEVEL\nn1    alive  v2       3\nn2    down   v1       2\n",
			},
		},
		{name: "upgrade status", args: []string{"upgrade", "status"}, replies: ok(`{"feature_level":2,"nodes":[],"shards":[]}`), asked: []string{"GET /v1/cluster"}, out: []string{"feature level 2\n\n"}},
		{name: "upgrade of no cluster", args: []string{"upgrade", "status"}, replies: ok(threeNodes), asked: []string{"GET /v1/cluster"}, err: []string{"not founded yet"}, code: exitFailure},
		{name: "upgrade finalize", args: []string{"upgrade", "finalize"}, replies: ok(`{"feature_level":3}`), asked: []string{"POST /v1/cluster/finalize"}, out: []string{"feature level 3\n"}},
		{
			name: "upgrade finalized too early", args: []string{"upgrade", "finalize"},
			replies: []reply{{status: 409, body: `{"title":"x","detail":"feature level 3 is not understood by n2 (release v1, level 2)","code":"feature_level"}`}},
			asked:   []string{"POST /v1/cluster/finalize"}, err: []string{"not understood by n2 (release v1, level 2) (409 feature_level)"}, code: exitFailure,
		},
		{
			name: "remove too early", args: []string{"remove", "n2", "--force"},
			replies: []reply{{status: 409, body: `{"title":"Node is not drained","detail":"the node is up and not drained","code":"not_drained"}`}},
			asked:   []string{"DELETE /v1/cluster/nodes/n2?force=true"}, err: []string{"not drained (409 not_drained)"}, code: exitFailure,
		},
	})
}

// The whole way, to a real node.
func TestCtlShowsANode(t *testing.T) {
	_, url := serve(t, "--data", t.TempDir()+"/data", "--name", "alone")
	if out := ctlSays(t, url, "cluster"); !strings.Contains(out, ": healthy\n") || !strings.Contains(out, "alone  alive  4 ") || !strings.Contains(out, "shards: 4: 4 ok\n") {
		t.Error(out)
	}
	if out := ctlSays(t, url, "shard", "1"); !strings.Contains(out, "leader    alone\n") {
		t.Error(out)
	}
	for _, n := range []string{"1", "5"} { // more than there are nodes is a wish for later
		if out := ctlSays(t, url, "replicas", n, "--wait", "20s"); out != "replicas: "+n+"\n" {
			t.Error(out)
		}
	}
	if got := carillon(t, "", nil, "ctl", "--url", url, "replicas", "8"); got.code != exitFailure || !strings.Contains(got.err, "must be 1 to 7") {
		t.Errorf("got %+v", got)
	}
	got := carillon(t, "", nil, "ctl", "--url", url, "drain", "alone")
	if got.code != exitFailure || !strings.Contains(got.err, "no other node") {
		t.Errorf("got %+v", got)
	}
}
