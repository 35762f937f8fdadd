import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Client, Problem } from "../src/index.js";
import { start, TestNode } from "../src/testing.js";
import { FakeNode, root, serve } from "./nodes.js";

const binary = process.env["CARILLON_BINARY"] ?? fileURLToPath(new URL("bin/carillon", root));

test("a year passes by a test clock", async () => {
  const calls: string[] = [];
  const receiver = createServer((request, response) => {
    calls.push(String(request.headers["carillon-test-clock"]));
    response.end();
  }).listen(0, "127.0.0.1");
  await new Promise((done) => receiver.once("listening", done));
  const node = await start({ binary, at: "2026-01-01T00:00:00Z" });
  try {
    const callback = { url: `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/` };
    await node.client.add("renewals", { id: "member-9", repeat: { cron: "0 9 28 * *", zone: "Europe/Berlin" }, callback });
    assert.equal((await node.advance("59d")).calls, 2);
    const moved = await node.to(new Date("2027-01-01T00:00:00Z"));
    assert.deepEqual([moved.calls, moved.left], [10, 0]);
    assert.equal((await node.now()).toISOString(), "2027-01-01T00:00:00.000Z");
    assert.deepEqual([calls[2], calls[3]], ["2026-03-28T08:00:00Z", "2026-04-28T07:00:00Z"]);
    await assert.rejects(node.client.advanceTo("2026-06-01T00:00:00Z"), (err) => err instanceof Problem && err.code === "clock_past");
    assert.equal((await node.client.cluster()).test_clock, true);
  } finally {
    await node.stop();
    receiver.close();
  }
});

test("a node without a test clock has none", async () => {
  const node = await serve();
  await assert.rejects(new Client(node.url).clock(), (err) => err instanceof Problem && err.code === "no_test_clock");
  await node.kill();
});

test("a clock that stands still is moved no more", async () => {
  const stopped = (now: string) => ({ body: { now, calls: 100_000, left: 1, stopped: true } });
  const last = { body: { now: "2026-02-01T00:00:00Z", calls: 7, left: 0 } };
  const [first, second] = [stopped("2026-01-01T00:00:00Z"), stopped("2026-01-02T00:00:00Z")];
  const fake = await FakeNode.start(first, second, last);
  const node = new TestNode(fake.url, () => fake.stop());
  try {
    assert.equal((await node.to("2026-02-01T00:00:00Z")).calls, 200_007);
    fake.replies = [first, second, second, last];
    await assert.rejects(node.to("2026-02-01T00:00:00Z"), /2026-01-02T00:00:00Z, after 300000 calls/);
  } finally {
    await node.stop();
  }
});

test("there is no binary", async () => {
  await assert.rejects(start({ binary: "/nowhere/carillon" }), /CARILLON_BIN/);
});
