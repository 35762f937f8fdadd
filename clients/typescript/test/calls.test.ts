/**
 * Which call goes where, and which is made again: against nodes that only answer as they are asked
 * to.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Client, Problem, RetryAfter, Unanswered, shardOf, type Options } from "../src/index.js";
import { FakeNode, freeAddress, problem, root, type Reply } from "./nodes.js";

const timer = { topic: "o", id: "a", state: "scheduled" };

async function using(replies: Reply[][], options: Options, run: (client: Client, ...nodes: [FakeNode, ...FakeNode[]]) => Promise<void>): Promise<void> {
  const nodes = await Promise.all(replies.map((r) => FakeNode.start(...r)));
  try {
    await run(new Client(nodes.map((n) => n.url), options), ...(nodes as [FakeNode, ...FakeNode[]]));
  } finally {
    await Promise.all(nodes.map((n) => n.stop()));
  }
}

const at = "2030-01-01T00:00:00Z";

test("calls that are safe to repeat are repeated, and no others", async () => {
  const calls: [boolean, (c: Client) => Promise<unknown>][] = [
    [true, (c) => c.get("o", "a")],
    [true, (c) => c.add("o", { id: "a", at, merge: "reject" })],
    [true, (c) => c.add("o", { id: "a", at_local: "2030-01-01T00:00:00", zone: "UTC", merge: "reject" })],
    [true, (c) => c.add("o", { delay: "1s" }, { idempotencyKey: "k" })],
    [true, (c) => c.add("o", { id: "a", delay: "1s", part: "p" })],
    [false, (c) => c.add("o", { id: "a", delay: "1s" })],
    [false, (c) => c.add("o", { at })],
    [false, (c) => c.add("o", { id: "a", at, merge: "replace" })],
    [false, (c) => c.add("o", { id: "a", at, repeat: { every: "1h" } })],
    [true, (c) => c.dryAdd("o", { delay: "1s" })],
    [true, (c) => c.put("o", "a", { at })],
    [true, (c) => c.put("o", "a", { at, repeat: { every: "1h" } })],
    [false, (c) => c.put("o", "a", { at, repeat: { every: "1h", count: 3 } })],
    [false, (c) => c.put("o", "a", { delay: "1s" })],
    [false, (c) => c.put("o", "a", { at }, { ifMatch: 3 })],
    [false, (c) => c.put("o", "a", { at }, { createOnly: true })],
    [false, (c) => c.patch("o", "a", { priority: 3 })],
    [true, (c) => c.cancel("o", "a")],
    [false, (c) => c.cancel("o", "a", { ifMatch: 3 })],
    [false, (c) => c.fire("o", "a")],
    [false, (c) => c.batch("o", [])],
    [true, (c) => c.ack(["r"])],
    [true, (c) => c.nack(["r"])],
    [true, (c) => c.extend(["r"], "1s")],
    [false, (c) => c.pull("o")],
    [true, (c) => c.putTopic("o", {})],
    [false, (c) => c.putTopic("o", {}, { ifMatch: "7-3" })],
    [false, (c) => c.patchTopic("o", {})],
    [false, (c) => c.deleteTopic("o")],
    [false, (c) => c.rotateSecret("o")],
    [true, (c) => c.rotateSecret("o", "whsec_x")],
    [false, (c) => c.cancelAll("o", { all: true })],
    [true, (c) => c.cancelAll("o", { all: true }, { dryRun: true })],
    [true, (c) => c.drainNode("n")],
    [false, (c) => c.removeNode("n")],
  ];
  await using([[{ body: timer }]], {}, async (client, node) => {
    for (const [repeated, call] of calls) {
      for (const trouble of call === calls[0]?.[1] ? [problem(503, "no_leader"), problem(429, "quota"), { cut: true }] : [{ cut: true }]) {
        node.replies = [trouble, { body: timer }];
        node.seen.length = 0;
        const made = await call(client).then(() => true, (err: unknown) => (err instanceof Unanswered || err instanceof Problem ? false : Promise.reject(err)));
        assert.deepEqual([made, node.seen.length], repeated ? [true, 2] : [false, 1], `${call} after ${JSON.stringify(trouble)}`);
      }
    }
  });
});

test("an answer that is no JSON, as of a proxy's page, is none", async () => {
  await using([[{ body: "<html>" }]], {}, async (client, node) => {
    await assert.rejects(client.get("o", "a"), (err) => err instanceof Unanswered && err.message.includes("GET /v1/topics/o/timers/a: the answer cannot be read"));
    assert.equal(node.seen.length, 1);
  });
});

test("a worker reports until the lease is over", async () => {
  const lease = { id: "a", receipt: "r", status: 200 };
  const done: Reply = { body: { timers: [lease], results: [lease] } };
  const refused = problem(503, "unavailable");
  for (const [leaseMs, graceMs, reports, faults, replies] of [
    [30_000, 30_000, 4, 0, [done, refused, refused, refused, done]],
    [300, 30_000, 2, 1, [done, refused]],
    [3_600_000, 300, 2, 1, [done, refused]],
  ] as const) {
    await using([[...replies]], { retries: 0 }, async (client, node) => {
      const stop = new AbortController();
      const errors: unknown[] = [];
      const fails = () => {
        stop.abort();
        throw new RetryAfter(3_600_000, "later");
      };
      const began = Date.now();
      await client.work("o", fails, { leaseMs, graceMs, waitMs: 0, signal: stop.signal, onError: (err) => errors.push(err) });
      const sent = node.seen.filter((r) => r.url === "/v1/nack");
      assert.ok(sent.length >= reports, `${sent.length} reports`);
      assert.match(sent.at(-1)?.body ?? "", /"delay":"3600000ms"/);
      assert.equal(errors.length, faults);
      assert.ok(Date.now() - began < 5000, "it reports for longer than the lease or the grace lasts");
    });
  }
});

test("an add that its topic may merge is not repeated", async () => {
  const add = (c: Client) => c.add("o", { id: "a", at });
  const cut: Reply = { cut: true };
  const done: Reply = { body: timer };
  const html: Reply = { body: "<html>" };
  const policy = (merge: string): Reply => ({ body: { topic: "o", policy: { merge } } });
  const cases: [string, boolean, ...Reply[]][] = [ // P is an add, G a read of the topic
    ["P", true, done],
    ["PGP", true, cut, policy("reject"), done],
    ["PGPG", false, cut, policy("reject"), cut, policy("collect"), done],
    ...["keep", "replace", "debounce", "collect"].map((merge): [string, boolean, ...Reply[]] => ["PG", false, cut, policy(merge), done]),
    ["PG", false, cut, { body: {} }, done],
    ["PG", false, cut, html, done],
    ["PGP", true, cut, problem(404, "unknown_topic"), done],
    ["PG", false, cut, { ...html, status: 404 }, done],
    ["PG", false, cut, problem(403, "forbidden"), done],
    ["PGGGP", true, cut, problem(503, "no_leader"), cut, policy("reject"), done],
    ["PGGG", false, cut],
    ["PG", false, problem(503, "unavailable"), policy("collect"), done],
    ["PG", false, { ...html, status: 503 }, policy("collect"), done],
    ...["no_leader", "overloaded", "low_disk"].map((code): [string, boolean, ...Reply[]] => ["PP", true, problem(503, code), done]),
    ["PP", true, problem(429, "quota"), done],
  ];
  for (const [asked, good, ...replies] of cases) {
    await using([[...replies]], { retries: 2 }, async (client, node) => {
      const what = `${asked} of ${JSON.stringify(replies)}`;
      const err: unknown = await add(client).then(() => undefined, (err: unknown) => err);
      assert.deepEqual([node.seen.map((r) => r.method[0]).join(""), err === undefined], [asked, good], what);
      if (!good) assert.equal(err instanceof Problem ? err.status : err instanceof Unanswered && /POST/.test(err.message) && undefined, replies[0]?.status, what);
      for (const r of node.seen) if (r.method === "GET") assert.equal(r.url, "/v1/topics/o");
    });
  }
});

test("an add waits no longer for the policy than for all, and asks only about what was sent", async () => {
  const sent: string[] = [];
  const options = (get: (init: RequestInit) => Promise<Response>): Options => ({
    timeoutMs: 500, retries: 2,
    fetch: (url, init = {}) => {
      sent.push(init.method ?? "");
      return init.method === "GET" ? get(init) : fetch(url, init);
    },
  });
  const silent = (init: RequestInit) => new Promise<Response>((_, fail) => init.signal?.addEventListener("abort", () => fail(new Error("aborted"))));
  await using([[{ cut: true }]], options(silent), async (client) => {
    await assert.rejects(client.add("o", { id: "a", at }), (err) => err instanceof Unanswered && /POST \/v1\/topics\/o\/timers/.test(err.message));
    assert.deepEqual(sent.splice(0), ["POST", "GET"]);
  });
  const stop = new AbortController();
  const aborts = (init: RequestInit) => {
    setTimeout(() => stop.abort(new Error("enough")), 10);
    return silent(init);
  };
  await using([[{ cut: true }]], options(aborts), async (client) => {
    await assert.rejects(client.add("o", { id: "a", at }, { signal: stop.signal }), Unanswered);
    assert.deepEqual(sent.splice(0), ["POST", "GET"]);
  });
  await assert.rejects(new Client(`http://${await freeAddress()}`, options(silent)).add("o", { id: "a", at }), Unanswered);
  assert.deepEqual(sent, ["POST", "POST", "POST"]);
});

test("another node is asked for events when one is silent", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const asked: string[] = [];
  const events = new Client(["http://a:1", "http://b:1"], {
    fetch: (url, init = {}) => {
      asked.push(new URL(String(url)).host);
      if (asked.length > 1) return Promise.resolve(new Response("{}", { status: 403 }));
      return new Promise<Response>((_, fail) => init.signal?.addEventListener("abort", () => fail(new Error("aborted"))));
    },
  }).events();
  const missed = events.next();
  t.mock.timers.tick(45_000);
  assert.equal((await missed).value?.kind, "missed");
  const refused = events.next();
  t.mock.timers.tick(10_000);
  await assert.rejects(refused, Problem);
  assert.deepEqual(asked, ["a:1", "b:1"]);
});

test("an id of dots is refused before fetch makes another path of it", async () => {
  await using([[{ body: timer }]], {}, async (client, node) => {
    const calls = [() => client.pauseTimer("o", ".."), () => client.resumeTimer("o", ".."), () => client.get("o", "."), () => client.deleteTopic(".."),
      () => client.request({ method: "GET", path: "/v1/topics/o/timers/%2E%2e/pause" })];
    for (const call of calls) {
      await assert.rejects(call(), (err) => err instanceof Problem && err.status === 400 && err.code === "bad_request" && err.detail === "path: dot segment", String(call));
    }
    assert.equal(node.seen.length, 0);
  });
});

test("repetitions end: by their number, by the time, by the signal", async () => {
  await using([[problem(503, "overloaded")]], { retries: 2 }, async (client, node) => {
    await assert.rejects(client.get("o", "a"), (err) => err instanceof Problem && err.code === "overloaded" && err.retryable);
    assert.equal(node.seen.length, 3);
  });
  await using([[problem(503, "overloaded", { "Retry-After": "7" })]], {}, async (client, node) => {
    const began = Date.now();
    await assert.rejects(client.get("o", "a", { timeoutMs: 2000 }), (err) => err instanceof Problem && err.retryAfterMs === 7000);
    assert.ok(Date.now() - began < 1500 && node.seen.length === 1, "it waited for what cannot come in time");
  });
  await using([[problem(503, "overloaded", { "Retry-After": "60" }), { body: timer }]], { maxWaitMs: 300 }, async (client) => {
    const began = Date.now();
    await client.get("o", "a");
    assert.ok(Date.now() - began >= 290, "it did not wait as long as it was asked to");
  });
  const stop = new AbortController();
  const answered: typeof fetch = async (url, init) => {
    const answer = await fetch(url, init);
    setTimeout(() => stop.abort(new Error("enough")), 300); // it waits by then
    return answer;
  };
  await using([[problem(503, "overloaded", { "Retry-After": "60" })]], { timeoutMs: Infinity, fetch: answered }, async (client) => {
    await assert.rejects(client.get("o", "a", { signal: stop.signal }), (err) => err instanceof Problem);
    await assert.rejects(client.get("o", "a", { signal: stop.signal }), /enough/);
  });
});

test("a node that takes no connection has seen nothing, and the next one is given any call", async () => {
  const nobody = `http://${await freeAddress()}`;
  await using([[{ body: timer }]], {}, async (_, node) => {
    const client = new Client([nobody, node.url], { retries: 0 });
    for (let n = 1; n <= 3; n++) {
      await client.fire("o", "a");
      assert.equal(node.seen.length, n);
    }
    await assert.rejects(new Client([nobody, nobody], { retries: 0 }).fire("o", "a"), Unanswered);
  });
});

test("calls go to the leader that an answer has named, if it is one of the client's nodes", async () => {
  await using([[{ body: timer }], [{ body: timer }], [{ body: timer }]], { token: " crl_x\n", retries: 0 }, async (_, first, leader, stranger) => {
    const client = new Client([first.url, leader.url], { token: "crl_x", retries: 0 });
    const shards = 4;
    const shard = shardOf("o", "a", shards);
    const other = Array.from({ length: 50 }, (_, n) => `t${n}`).find((id) => shardOf("o", id, shards) !== shard) ?? "";
    const hint = (node: FakeNode, n = shard) => [{ body: timer, headers: { "Carillon-Leader": `"${node.host}";shard=${n};shards=${shards}` } }, { body: timer }];
    const asked = (...want: number[]) => assert.deepEqual([first.seen.length, leader.seen.length, stranger.seen.length], want);
    first.replies = hint(leader);
    await client.get("o", "a");
    asked(1, 0, 0);
    await client.get("o", "a");
    asked(1, 1, 0);
    await client.get("o", other);
    asked(2, 1, 0);
    await client.add("o", { key: "a", delay: "1s" });
    asked(2, 2, 0);
    await client.add("o", { delay: "1s" });
    asked(3, 2, 0);
    leader.replies = [problem(503, "no_leader"), { body: timer }];
    await assert.rejects(client.get("o", "a"));
    await client.get("o", "a"); // not known any more
    asked(4, 3, 0);
    for (const text of [hint(stranger)[0]?.headers?.["Carillon-Leader"] ?? "", "", '"', `"${leader.host}";shard=9;shards=4`, `"${leader.host}";shards=4;shard=1`]) {
      first.replies = [{ body: timer, headers: { "Carillon-Leader": text } }];
      await client.get("o", "a");
    }
    asked(9, 3, 0);
    assert.equal(first.seen[0]?.headers.authorization, "Bearer crl_x");
  });
});

test("shards are found as nodes find them", () => {
  const lines = readFileSync(new URL("clients/testdata/shards.txt", root), "utf8").trim().split("\n");
  assert.ok(lines.length >= 100);
  for (const line of lines) {
    const [topic = "", id = "", shards, want] = line.split(" ");
    assert.equal(shardOf(topic, id, Number(shards)), Number(want), line);
  }
});

test("errors say what was answered", async () => {
  const existing = { version: 3, state: "leased", due: at, due_ms: 1893456000000 };
  await using([[{ status: 409, body: { status: 409, code: "in_flight", title: "Conflict", detail: "a call is running", retryable: false, existing } }]], {}, async (client) => {
    const err = await client.fire("o", "a").catch((err: unknown) => err);
    assert.ok(err instanceof Problem);
    assert.deepEqual([err.status, err.code, err.existing, err.message], [409, "in_flight", existing, "carillon: a call is running (409 in_flight)"]);
  });
  await using([[{ status: 410, body: { status: 410, code: "over", detail: "too late", outcome: "already_fired" } }]], {}, async (client) => {
    await assert.rejects(client.cancel("o", "a"), { code: "over", outcome: "already_fired", message: "carillon: too late (410 over): already fired" });
  });
  for (const [reply, text] of [
    [{ status: 502, body: "<html>" }, /502.*no explanation that a node gives: <html>/],
    [{ status: 302, headers: { Location: "https://elsewhere" } }, /to https:\/\/elsewhere, which is not followed/],
    [{ status: 500, body: "null" }, /no explanation/],
  ] as [Reply, RegExp][]) {
    await using([[reply]], { retries: 0 }, async (client, node) => {
      await assert.rejects(client.get("o", "a"), (err) => err instanceof Problem && err.status === reply.status && err.code === "" && text.test(err.message));
      assert.equal(node.seen.length, 1);
    });
  }
});

test("what cannot be meant is refused at once", () => {
  for (const url of [[], "127.0.0.1:7700", "ftp://x", "http://u:p@x", "http://x/?a", ""]) assert.throws(() => new Client(url), TypeError, String(url));
  for (const token of ["a b", "a\nb", "ü"]) assert.throws(() => new Client("http://x", { token }), TypeError, token);
});

test("what cannot be sent is refused by the client", async () => {
  const circle: unknown[] = [];
  circle.push(circle);
  let deep: unknown[] = [];
  for (let i = 0; i < 100_000; i++) deep = [deep];
  await using([[{ body: timer }]], {}, async (client, node) => {
    for (const payload of [circle, deep, 1n]) {
      await assert.rejects(client.add("o", { delay: "1s", payload }), (err) => err instanceof TypeError && /^carillon: the body cannot be sent as JSON: /.test(err.message));
    }
    await assert.rejects(async () => client.get("o", "\ud800"), (err) => err instanceof TypeError && /^carillon: /.test(err.message));
    assert.deepEqual(node.seen, []);
  });
});

test("requests are escaped, and have the client's headers", async () => {
  await using([[{ body: timer }]], {}, async (client, node) => {
    await client.put("o", "{k}a:b@c", { at }, { createOnly: true });
    await client.patchTopic("o", { callback: { timeout: null } }, { ifMatch: "7-3", force: true });
    await client.add("o", { delay: "1s" }, { idempotencyKey: "k" });
    const [put, patch, add] = node.seen;
    assert.deepEqual([put?.method, put?.url, put?.headers["if-none-match"], put?.headers["content-type"]], ["PUT", "/v1/topics/o/timers/%7Bk%7Da%3Ab%40c", "*", "application/json"]);
    assert.deepEqual([patch?.url, patch?.headers["if-match"], patch?.body], ["/v1/topics/o?force=true", '"7-3"', '{"callback":{"timeout":null}}']);
    assert.equal(add?.headers["idempotency-key"], '"k"');
  });
});
