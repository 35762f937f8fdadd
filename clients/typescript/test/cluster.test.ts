/** Three real nodes: any of them takes a call, leaders are found, and a node may die. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, shardOf } from "../src/index.js";
import { cluster, eventually } from "./nodes.js";

test("three nodes, of which one dies", { timeout: 60_000 }, async () => {
  const nodes = await cluster();
  try {
    const asked: string[] = [];
    const client = new Client(nodes.map((n) => n.url), {
      fetch: (url, init) => {
        asked.push(new URL(String(url)).origin);
        return fetch(url, init);
      },
    });
    const at = new Date(Date.now() + 3_600_000).toISOString();
    const add = (n: number) => client.add("orders", { id: `o${n}`, at, callback: { url: "http://127.0.0.1:9/" } });
    for (let n = 0; n < 40; n++) await add(n);
    await eventually(async () => {
      const view = await client.cluster();
      const leads = new Map(view.shards.map((s) => [s.shard, `http://${view.nodes.find((n) => n.name === s.leader)?.http}`]));
      asked.length = 0;
      for (let n = 0; n < 40; n++) await client.get("orders", `o${n}`);
      return asked.length === 40 && asked.every((url, n) => url === leads.get(shardOf("orders", `o${n}`, 4)));
    });

    await nodes[0]?.kill();
    for (let n = 40; n < 80; n++) await add(n); // calls are repeated until the others lead
    let count = 0;
    for await (const _ of client.list("orders")) count++;
    assert.equal(count, 80);
  } finally {
    await Promise.all(nodes.map((n) => n.kill()));
  }
});
