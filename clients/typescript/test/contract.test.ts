/** Every route that the client has, against a real node. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { Client, Problem, Receiver, RetryAfter, Unanswered, newSecret, newSigningKey, type Delivery, type Event, type Lease, type Op } from "../src/index.js";
import { eventually, root, serve, type Node } from "./nodes.js";

let node: Node;
let client: Client;
let arrived: Delivery[] = [];
let receiver: Receiver;
const called = new Set<string>(); // "METHOD /path"
const secret = newSecret();
const server = createServer((req, res) => {
  receiver.listener((d) => {
    arrived.push(d);
    if (d.timer === "fails") throw new Error("not today");
  })(req, res);
});

before(async () => {
  node = await serve("--shards", "4");
  client = new Client(node.url, {
    fetch: (url, init) => {
      called.add(`${init?.method} ${new URL(String(url)).pathname}`);
      return fetch(url, init);
    },
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  receiver = new Receiver({ secrets: [secret] });
});

after(async () => {
  server.closeAllConnections();
  server.close();
  await node.kill();
});

const hook = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
const inAnHour = () => new Date(Date.now() + 3_600_000).toISOString();

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

const refused = (code: string) => (err: unknown) => err instanceof Problem && err.code === code;

test("topics", async () => {
  const made = await client.putTopic("orders", { callback: { url: hook(), timeout: "5s" }, secrets: [secret], retry: { max_attempts: 1 } });
  assert.deepEqual([made.policy.callback?.url, made.policy.retry?.max_attempts, made.auto_created], [hook(), 1, false]);
  assert.notEqual(made.policy.secrets?.[0], secret);
  await client.putTopic("orders", made.policy); // a policy can be put back as shown
  assert.equal((await client.putTopic("orders", made.policy, { dryRun: true })).action, "leave");
  const dry = await client.patchTopic("orders", { history: "9h" }, { dryRun: true });
  assert.deepEqual(dry.changes, [{ field: "history", from: made.policy.history, to: "9h" }]);
  assert.deepEqual((await client.topic("orders")).policy, made.policy);
  const read = await client.topic("orders");
  const patched = await client.patchTopic("orders", { concurrency: 7, callback: { timeout: null } }, { ifMatch: read.version ?? "" });
  assert.deepEqual([patched.policy.concurrency, patched.policy.callback?.timeout], [7, "10s"]);
  await assert.rejects(client.patchTopic("orders", { concurrency: 8 }, { ifMatch: read.version ?? "" }), refused("version_mismatch"));
  assert.deepEqual([(await client.pause("orders")).paused, (await client.resume("orders")).paused], [true, false]);
  assert.deepEqual((await all(client.topics({ prefix: "ord", counts: true }))).map((t) => [t.topic, t.counts?.scheduled]), [["orders", 0]]);
  await assert.rejects(client.topic("nobody"), refused("unknown_topic"));
});

test("keys are changed without a call being refused", async () => {
  const second = newSecret();
  assert.equal((await client.rotateSecret("orders", second)).secrets.length, 2);
  assert.match((await client.rotateSecret("orders")).secret ?? "", /^whsec_/);
  const { secrets } = await client.topic("orders").then((t) => t.policy);
  assert.deepEqual((await client.finishRotation("orders", secrets?.[2])).secrets, [secrets?.[2]]); // the first one stays
  const pair = newSigningKey();
  assert.deepEqual((await client.rotateSigningKey("orders", pair.privateKey)).signing_keys, [pair.publicKey]);
  assert.equal((await client.rotateSigningKey("orders")).signing_keys.length, 2);
  assert.deepEqual((await client.finishKeyRotation("orders", pair.publicKey)).signing_keys, [pair.publicKey]);
  receiver = new Receiver({ publicKeys: [pair.publicKey] });
  await client.add("orders", { id: "by-key", delay: "0s" });
  await eventually(async () => arrived.length > 0);
  receiver = new Receiver({ secrets: [secret] });
});

test("a timer's life", async () => {
  arrived = [];
  const at = new Date(Date.now() + 50).toISOString();
  const spec = { id: "{order-77}close", at, payload: { text: "<&> ü" } };
  const made = await client.add("orders", spec);
  assert.equal((await client.add("orders", spec)).uid, made.uid); // repeated
  await eventually(async () => arrived.length === 1);
  const call = arrived[0];
  assert.deepEqual([call?.topic, call?.timer, call?.attempt, call?.due.toISOString(), call?.json()], ["orders", spec.id, 1, at, spec.payload]);
  await eventually(async () => (await client.get("orders", spec.id)).state === "done");
  await assert.rejects(client.cancel("orders", spec.id), (err) => refused("over")(err) && (err as Problem).outcome === "already_fired");
  await eventually(async () => (await all(client.history("orders", { id: spec.id }))).length === 1);

  const keyed = await client.add("orders", { delay: "1h", payload_base64: "AP8=" }, { idempotencyKey: "once" });
  assert.equal((await client.add("orders", { delay: "1h", payload_base64: "AP8=" }, { idempotencyKey: "once" })).uid, keyed.uid);
  assert.equal(keyed.payload_base64, "AP8=");

  const put = await client.put("orders", "p", { at: inAnHour() }, { createOnly: true });
  await assert.rejects(client.put("orders", "p", { at: inAnHour() }, { createOnly: true }), refused("version_mismatch"));
  const patched = await client.patch("orders", "p", { priority: 9, labels: ["vip"], retry: { max_attempts: 3 } }, { ifMatch: put.version });
  assert.deepEqual([patched.version, patched.priority, patched.labels, patched.max_attempts], [put.version + 1, 9, ["vip"], 3]);
  assert.equal((await client.patch("orders", "p", { retry: { max_attempts: null } })).max_attempts, 1);
  await assert.rejects(client.patch("orders", "p", { priority: 1 }, { ifMatch: put.version }), refused("version_mismatch"));
  assert.equal((await client.fire("orders", "p")).id, "p");
  await eventually(async () => arrived.some((d) => d.timer === "p" && d.asked !== undefined));
  await assert.rejects(client.get("orders", "nobody"), refused("unknown_timer"));
  await assert.rejects(client.add("orders", { id: "a/b", delay: "1s" }), refused("bad_name"));
  await assert.rejects(client.add("orders", {}), refused("bad_time"));
});

test("rehearsals change nothing", async () => {
  const series = { repeat: { cron: "0 8 * * 1-5", zone: "Europe/Berlin" } };
  assert.equal((await client.dryAdd("orders", series)).next?.length, 5);
  assert.equal((await client.dryPut("orders", "dry", { delay: "1h" })).id, "dry");
  assert.ok((await client.dryAdd("orders", { at: "2020-01-01T00:00:00Z" })).late_by_ms! > 60_000);
  await assert.rejects(client.get("orders", "dry"), refused("unknown_timer"));
  await client.put("orders", "series", series);
  assert.equal((await client.get("orders", "series", { next: 3 })).next?.length, 3);
  assert.equal((await client.dryPatch("orders", "series", { priority: 3 })).priority, 3);
  assert.equal((await client.get("orders", "series")).priority, 0);
  const held = await client.pauseTimer("orders", "series");
  assert.deepEqual([held.paused, held.waits_for, (await client.resumeTimer("orders", "series")).paused], [true, "paused", undefined]);
  assert.equal(await client.cancel("orders", "series"), "prevented");
});

test("many at once", async () => {
  const adds = Array.from({ length: 20 }, (_, n): Op => ({ op: "add", id: `b${String(n).padStart(2, "0")}`, at: inAnHour(), labels: [`l${n % 2}`] }));
  const results = await client.batch("orders", [...adds, { op: "add", id: "a/b", delay: "0s" }, { op: "patch", id: "b00", priority: 3 }, { op: "cancel", id: "b19" }]);
  assert.deepEqual([results[0]?.timer?.labels, results[20]?.error?.code, results[21]?.timer?.priority, results[22]?.outcome], [["l0"], "bad_name", 3, "prevented"]);
  assert.equal((await client.batch("orders", [{ op: "fire", id: "nobody" }], { brief: true }))[0]?.error?.code, "unknown_timer");
  const evens = { filter: { label: "l0", id_prefix: "b" } };
  assert.deepEqual(await client.reschedule("orders", { ...evens, shift: "1h" }, { dryRun: true }).then((c) => [c.matched, c.changed, c.dry_run]), [10, 10, true]);
  assert.equal((await client.reschedule("orders", { ...evens, shift: "1h" })).changed, 10);
  const ids = await all(client.list("orders", { id_prefix: "b", label: ["l1"], payload: false }));
  assert.deepEqual([ids.length, ids[0]?.id], [9, "b01"]);
  assert.equal((await client.due({ topic: "orders", buckets: 2, until: new Date(Date.now() + 4 * 3_600_000).toISOString() })).counts?.length, 2);
  assert.equal((await client.pauseTimers("orders", evens)).changed, 10);
  assert.equal((await client.resumeTimers("orders", evens)).changed, 10);
  assert.equal((await client.cancelAll("orders", evens)).changed, 10);
  await assert.rejects(client.cancelAll("orders", {}), refused("bad_request"));
});

test("pages are followed", async () => {
  const ops = Array.from({ length: 1000 }, (_, n): Op => ({ op: "add", id: `m${n}`, delay: "1h", callback: { url: hook() } }));
  await client.batch("many", ops, { brief: true });
  await client.add("many", { id: "last", delay: "2h", callback: { url: hook() } });
  const ids = await all(client.list("many", { payload: false }));
  assert.deepEqual([ids.length, new Set(ids.map((t) => t.id)).size, ids.at(-1)?.id], [1001, 1001, "last"]);
  const last = await all(client.listAll({ id: "last", payload: false }));
  assert.deepEqual(last.map((t) => [t.topic, t.id]), [["many", "last"]]);
  assert.equal((await all(client.listAll({ id_prefix: "m" }))).length, 1000);
});

test("dead letters", async () => {
  await client.add("orders", { id: "fails", delay: "0s" });
  await eventually(async () => (await all(client.deadLetters("orders", { reason: "max_attempts" }))).length === 1);
  const [dead] = await all(client.deadLetters("orders"));
  assert.deepEqual([dead?.id, dead?.reason, dead?.last_status, (dead?.ended_ms ?? 0) > 0], ["fails", "max_attempts", 500, true]);
  assert.deepEqual(dead?.attempt_log?.map((a) => [a.error, a.answer]), [["status 500", "not today"]]);
  assert.equal((await client.redriveDead("orders", { ids: ["fails"] }, { dryRun: true })).changed, 1);
  assert.equal((await client.redriveDead("orders", { uids: [dead?.uid ?? ""] })).changed, 1);
  await eventually(async () => (await all(client.deadLetters("orders"))).length === 1);
  assert.equal((await client.purgeDead("orders", { all: true })).changed, 1);
});

test("a worker handles each timer once, but for what fails", async () => {
  await client.putTopic("jobs", { delivery: "pull" });
  await client.batch("jobs", Array.from({ length: 12 }, (_, n): Op => ({ op: "add", id: `j${n}`, delay: "0s" })), { brief: true });
  const handled: Lease[] = [];
  const errors: unknown[] = [];
  const stop = new AbortController();
  const working = client.work("jobs", async (lease, signal) => {
    handled.push(lease);
    if (lease.id === "j3" && lease.attempt === 1) throw new RetryAfter(10, "not yet");
    if (lease.id === "j4") await wait(1400); // longer than its lease
    signal.throwIfAborted();
  }, { concurrency: 4, leaseMs: 1000, waitMs: 500, signal: stop.signal, onError: (err) => errors.push(err) });
  await eventually(async () => (await client.topic("jobs")).counts?.done === 12);
  stop.abort();
  await working;
  assert.deepEqual([handled.length, handled.filter((l) => l.id === "j3").length, errors], [13, 2, []]);
  const [j3] = await all(client.history("jobs", { id: "j3" }));
  assert.equal(j3?.attempt_log?.[0]?.error?.includes("not yet"), true);
});

test("a worker's handler is stopped: when its lease is over, and at the end of the grace", async () => {
  await client.add("jobs", { id: "lost", delay: "0s", retry: { max_attempts: 1 } });
  const stop = new AbortController();
  const errors: unknown[] = [];
  let reason: unknown;
  await client.work("jobs", async (lease, signal) => {
    await client.ack([lease.receipt]); // so that it cannot be extended
    await new Promise((done) => signal.addEventListener("abort", done));
    reason = signal.reason;
    stop.abort();
  }, { leaseMs: 1000, waitMs: 200, signal: stop.signal, onError: (err) => errors.push(err) });
  assert.ok(refused("over")(reason));
  await client.add("jobs", { id: "slow", delay: "0s" });
  const end = new AbortController();
  await client.work("jobs", async (_, signal) => {
    end.abort();
    await new Promise((done) => signal.addEventListener("abort", done));
    reason = signal.reason;
  }, { graceMs: 50, signal: end.signal });
  assert.match(String(reason), /stopped/);
  await assert.rejects(client.work("orders", () => {}), refused("wrong_delivery"));
});

test("leases by hand", async () => {
  await client.batch("jobs", [{ op: "add", id: "h1", delay: "0s" }, { op: "add", id: "h2", delay: "0s" }]);
  const leases: Lease[] = [];
  await eventually(async () => (leases.push(...(await client.pull("jobs", { max: 2 - leases.length, wait: "1s", lease: "30s" }))), leases.length === 2));
  const [a = "", b = ""] = leases.map((l) => l.receipt);
  assert.deepEqual((await client.extend([a, "none"], "40s")).map((r) => r.status), [200, 410]);
  assert.deepEqual((await client.nack([b], { delay: "1h", reason: "later" })).map((r) => r.status), [200]);
  assert.deepEqual([(await client.ack([a]))[0]?.status, (await client.ack([a]))[0]?.status], [200, 200]);
  assert.equal((await client.get("jobs", leases[1]?.id ?? "")).last_error, "later");
});

test("an add whose answer is lost is done once", async () => {
  await client.putTopic("digest", { callback: { url: hook() }, merge: "collect" });
  let lost = false;
  const lossy = new Client(node.url, {
    fetch: async (url, init) => {
      const answer = await fetch(url, init);
      if (init?.method === "GET" || lost) return answer;
      lost = true;
      throw new TypeError("lost");
    },
  });
  await assert.rejects(lossy.add("digest", { id: "day", at: inAnHour(), payload: 1 }), (err) => err instanceof Unanswered && /lost/.test(err.message));
  const adds = [
    () => lossy.add("digest", { id: "part", delay: "1h", payload: 1, part: "p" }),
    () => lossy.add("digest", { delay: "1h", payload: 1 }, { idempotencyKey: "k" }),
    () => lossy.add("digest", { id: "own", at: inAnHour(), payload: 1, merge: "reject" }),
    () => lossy.add("mail", { id: "first", at: inAnHour(), payload: 1, callback: { url: hook() } }),
  ];
  for (const add of adds) {
    lost = false;
    await add();
    assert.ok(lost);
  }
  const payloads = await Promise.all(["day", "part", "idem-k", "own"].map(async (id) => (await client.get("digest", id)).payload));
  assert.deepEqual([payloads, (await client.get("mail", "first")).version], [[[1], [1], 1, 1], 1]);
});

test("events", async () => {
  const stop = new AbortController();
  const seen: Event[] = [];
  const watching = (async () => {
    for await (const event of client.events({ topic: "orders", kind: "added,cancelled" }, { signal: stop.signal })) {
      seen.push(event);
      if (event.kind === "cancelled") stop.abort();
    }
  })();
  for (let n = 0; !stop.signal.aborted; n++) {
    await client.add("orders", { id: `e${n}`, at: inAnHour() });
    await client.cancel("orders", `e${n}`);
    await wait(20);
  }
  await watching;
  assert.ok(seen.some((e) => e.kind === "added" && e.topic === "orders" && e.due_ms));
  await assert.rejects(all(client.events({ kind: "nonsense" })), refused("bad_request"));
});

test("the cluster", async () => {
  const cluster = await client.cluster();
  const name = cluster.nodes[0]?.name ?? "";
  assert.deepEqual([cluster.healthy, cluster.nodes.length, cluster.shards.length], [true, 1, 4]);
  assert.equal((await client.shard(1)).shard, 1);
  assert.equal((await client.clusterStats()).nodes?.length, 1);
  assert.equal((await all(client.destinations({ state: "closed" }))).length, 1);
  await assert.rejects(client.clock(), refused("no_test_clock"));
  await assert.rejects(client.advance("1h"), refused("no_test_clock"));
  await client.setReplicas(3);
  assert.ok((await client.previewShards(8)).bytes >= 0);
  await assert.rejects(client.setShards(6), refused("bad_shards"));
  assert.ok((await client.finalizeUpgrade()) >= 1);
  await assert.rejects(client.drainNode("nobody"), refused("not_found"));
  assert.equal((await client.resumeNode(name)).state, "alive");
  await assert.rejects(client.removeNode(name), refused("not_drained"));
  let size = 0;
  for await (const chunk of await client.backup()) size += chunk.length;
  assert.ok(size > 1000);
});

test("topics go", async () => {
  await assert.rejects(client.deleteTopic("orders"), refused("not_empty"));
  assert.ok((await client.deleteTopic("orders", { force: true })) > 0);
  await assert.rejects(client.request({ method: "GET", path: "/v1/topics/orders" }), refused("unknown_topic"));
});

// Last: all others have been made.
test("all routes of docs/openapi.yaml have been called", () => {
  const routes: [string, string][] = [];
  let path = "";
  for (const line of readFileSync(new URL("docs/openapi.yaml", root), "utf8").split("\n")) {
    path = /^ {2}(\/\S*):$/.exec(line)?.[1] ?? path;
    if (line === "webhooks:") break;
    const method = /^ {4}(get|put|post|patch|delete):$/.exec(line)?.[1];
    if (method) routes.push([method.toUpperCase(), path]);
  }
  const others = ["/healthz", "/readyz", "/metrics"]; // for load balancers and Prometheus
  const missing = routes.filter(([method, path]) => {
    const pattern = new RegExp(`^${method} ${path.replace(/\{\w+\}/g, "[^/]+")}$`);
    return !others.includes(path) && ![...called].some((one) => pattern.test(one));
  });
  assert.ok(routes.length > 35);
  assert.deepEqual(missing, []);
});
