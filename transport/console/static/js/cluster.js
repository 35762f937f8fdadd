// The nodes and the shards that each leads; to drain a node, and to resume it.
import { call, get, html, many, may, num, rate, span, useLoad } from "./lib.js";
import { Action, Badge, Card, Empty, Failed, say, Spark, Table, When } from "./parts.js";
import { backups, troubles, Worst, worstOf } from "./troubles.js";

const kinds = { alive: "ok", suspect: "warn", down: "bad", draining: "warn", drained: "warn", left: "" };
const shardKinds = { ok: "ok", moving: "busy", degraded: "warn", no_quorum: "bad" };
const shardWords = { ok: "ok", moving: "moving", degraded: "degraded", no_quorum: "no majority" };

// loadStats asks for the work of all nodes, where the token may know it.
export const loadStats = (signal) => (may("cluster") ? get("/v1/cluster/stats", {}, signal) : Promise.resolve(null));

function Backups({ of: b }) {
  if (!b) return html`<p class="muted">There is no backup schedule. To set one: <span class="mono">carillon serve --backup-to s3://bucket/prefix</span></p>`;
  return html`<dl class="facts"><dt>schedule</dt><dd><span class="mono">${b.every}</span> UTC</dd>
    <dt>last one</dt><dd>${b.made ? html`<${When} ms=${b.made} />` : html`<span class="muted">none yet</span>`}</dd>
    ${b.overdue > 0 && html`<dt>overdue</dt><dd><${Badge} kind=${b.error ? "bad" : "busy"}>${b.error ? "failing" : "running"}<//> for ${span(b.overdue)}${b.error && html`<div class="small">${b.error}</div>`}</dd>`}</dl>`;
}

export function NodeTable({ cluster, stats, actions }) {
  const of = (name) => ((stats && stats.nodes) || []).find((s) => s.name === name) || {};
  const columns = [
    ["Node", (n) => html`<b>${n.name}</b>${n.http && html` <span class="muted small mono">${n.http}</span>`}`],
    ["State", (n) => html`<${Badge} kind=${kinds[n.state]}>${n.state}<//>${n.low_disk ? html` <${Badge} kind="bad">disk almost full<//>` : ""}${n.unfit ? html`<div class="small">${n.unfit}</div>` : ""}`],
    ["Leads", (n) => num(n.leads), "right"],
    ["Replicas", (n) => num(n.replicas), "right"],
    ["Calls / s", (n) => html`<${Spark} values=${of(n.name).fired_each_second} label="Calls in each of the last sixty seconds" /> ${rate(of(n.name).fired_per_second)}`, "right"],
    ["p99 lateness", (n) => { const l = of(n.name).lateness_ms; return l && l.count ? span(l.p99) : "–"; }, "right"],
    ["Clock", (n) => (n.clock_offset_ms === undefined ? "–" : `${n.clock_offset_ms < 0 ? "−" : ""}${span(n.clock_offset_ms)}`), "right"],
    ["Version", (n) => n.version || "–"],
  ];
  if ((cluster.nodes || []).some((n) => n.zone)) columns.splice(1, 0, ["Zone", (n) => n.zone || "–"]);
  if (actions) columns.push(["", actions]);
  return html`<${Table} rows=${cluster.nodes || []} keyOf=${(n) => n.name} caption="Nodes" columns=${columns} />`;
}

// What an upgrade waits for. It is finalized by command line alone: it cannot be taken back.
function Upgrade({ upgrade: u, level }) {
  return html`<p class="notice warn" role="status">${u.lacking.length
    ? html`An upgrade to feature level ${u.feature_level} is under way. These nodes still run the old release: ${u.lacking.join(", ")}.`
    : html`All nodes run a release with feature level ${u.feature_level}; the cluster uses ${level}. Until you finalize the upgrade, nodes can go back to the old release. To finalize it: <span class="mono">carillon ctl upgrade finalize</span>`}</p>`;
}

// size writes a number of bytes.
function size(n) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; n >= 1024 && at < units.length - 1; at++) n /= 1024;
  return `${num(Math.round(n))} ${units[at]}`;
}

const growthWaits = { majority: "it has no majority", move: "its replicas are moving", disk: "the disk of a node with a replica is almost full", memory: "a node with a replica has almost used its memory" };

// How far the growth of the number of shards is.
function Growth({ growth: r }) {
  return html`<p class="notice" role="status">The cluster grows from ${num(r.from)} to ${num(r.to)} shards: ${num(r.done)} of ${num(r.to - r.from)} new shards are ready.
    ${r.waits_for ? html` It waits for shard ${r.shard}: ${growthWaits[r.waits_for] || r.waits_for}.` : ""}</p>`;
}

// What moves between nodes, and what waits and why.
function Moves({ moves: m }) {
  const why = m.at_limit ? `${m.at_limit.join(", ")} cannot send or receive more at once` : m.waits_for ? `${m.waits_for.join(", ")} must recover or be replaced first` : "a node has just joined, and more may follow";
  return html`<p class="notice" role="status">${many(m.under_way, "replica is", "replicas are")} moving between nodes or being removed${m.bytes ? ` (${size(m.bytes)})` : ""}.
    ${m.waiting ? html` ${many(m.waiting, "move waits", "moves wait")}: ${why}.` : ""}${m.repairs ? html` ${num(m.repairs)} of them replace missing replicas.` : ""}</p>`;
}

function MoreShards({ total, again }) {
  const wish = (form) => ({ shards: Number(form.get("shards")) });
  const preview = async (form) => {
    const need = await call("POST", "/v1/cluster/shards?dry_run=true", wish(form));
    return html`This writes and sends about ${size(need.bytes)}. A node needs ${size(need.memory_bytes)} of memory while it divides a shard, and the new shards take ${size(need.lasting_memory_bytes)} of each node for good. Afterwards, ${many(need.moves, "replica moves", "replicas move")}.${need.waits_for ? html` <b>It would wait for shard ${need.shard}: ${growthWaits[need.waits_for] || need.waits_for}.</b>` : ""}`;
  };
  const grow = async (form) => { const r = await call("POST", "/v1/cluster/shards", wish(form)); say(`The number of shards grows to ${num(r.shards)}.`); again(); };
  const sizes = [];
  for (let n = 2 * total; n <= 4096 && sizes.length < 6; n *= 2) sizes.push(n);
  if (!sizes.length) return "";
  return html`<${Action} needs="cluster" label="More shards" title="More shards?" verb="Grow" danger preview=${preview} run=${grow}>
    <p>There are ${num(total)} shards. They are divided one after the other, while timers keep running.</p>
    <label>Shards <select name="shards">${sizes.map((n) => html`<option key=${n} value=${n}>${num(n)}</option>`)}</select></label>
    <p class="notice warn">The number of shards cannot be reduced later.</p><//>`;
}

function NodeActions({ node: n, alone, again }) {
  const path = `/v1/cluster/nodes/${encodeURIComponent(n.name)}`;
  const order = (verb, words) => async () => { const r = await call("POST", `${path}/${verb}`, {}); say(`${n.name}: ${words} (${r.state}).`); again(); };
  if (n.state === "draining" || n.state === "drained") return html`<${Action} needs="cluster" label="Resume" ask=${false} run=${order("resume", "resumed")} />`;
  if (n.state === "down" || n.state === "left") return "";
  return html`<${Action} needs="cluster" label="Drain" title=${`Drain node ${n.name}?`} verb=${`Drain ${n.name}`} danger run=${order("drain", "draining")}>
    <p>All shards of ${n.name} move to other nodes, so that it can be stopped. It leads ${num(n.leads)} shards and holds ${num(n.replicas)} replicas now. Timers keep running.</p>
    ${alone && html`<p class="notice warn">There is no other node, so the cluster will refuse.</p>`}
    <p class="muted">You can resume it at any time.</p><//>`;
}

export function Cluster() {
  const cluster = useLoad((s) => get("/v1/cluster", {}, s), [], 2000);
  const stats = useLoad(loadStats, [], 3000);
  const v = cluster.data;
  if (!v) return html`<div class="stack"><h1>Cluster</h1><${Failed} error=${cluster.error} again=${cluster.again} /></div>`;
  const nodes = v.nodes || [], shards = v.shards || [];
  const ledBy = (name) => shards.filter((s) => s.leader === name);
  const unled = shards.filter((s) => !s.leader);
  return html`<div class="stack"><div class="between"><h1>Cluster</h1>${!cluster.error && html`<${Worst} kind=${worstOf(v, troubles(v, null, null, stats.data))} />`}</div>
    <${Failed} error=${cluster.error || stats.error} again=${cluster.again} />
    ${v.resharding && html`<${Growth} growth=${v.resharding} />`}
    ${v.moves && html`<${Moves} moves=${v.moves} />`}
    ${v.upgrade && html`<${Upgrade} upgrade=${v.upgrade} level=${v.feature_level} />`}
    <${Card} title="Nodes" side=${html`<span class="muted small">${v.replicas ? `${v.replicas} replicas per shard · ` : ""}feature level ${v.feature_level ?? "–"} · id <span class="mono">${v.cluster_id || "none yet"}</span></span>`}>
      ${nodes.length ? html`<${NodeTable} cluster=${v} stats=${stats.data} actions=${(n) => html`<${NodeActions} node=${n} alone=${nodes.length < 2} again=${cluster.again} />`} />` : html`<${Empty}>This node has not joined a cluster yet.<//>`}<//>
    ${may("cluster") && stats.data && html`<${Card} title="Backups"><${Backups} of=${backups(stats.data)} /><//>`}
    <${Card} title="Shard leaders">
      <dl class="facts">${nodes.map((n) => html`<dt key=${n.name}>${n.name}</dt><dd>${ledBy(n.name).length ? ledBy(n.name).map((s) => html`<span class="chip" key=${s.shard}>${s.shard}</span>`) : html`<span class="muted">none</span>`}</dd>`)}
        ${unled.length > 0 && html`<dt>no leader</dt><dd>${unled.map((s) => html`<span class="chip" key=${s.shard}>${s.shard}</span>`)}</dd>`}</dl><//>
    <${Card} title="Shards" side=${v.shards_total > 0 && !v.resharding && html`<${MoreShards} total=${v.shards_total} again=${cluster.again} />`}><${Table} rows=${shards.slice(0, 500)} keyOf=${(s) => s.shard} caption="Shards" columns=${[
      ["Shard", (s) => html`<b>${s.shard}</b>`],
      ["State", (s) => html`<${Badge} kind=${shardKinds[s.state]}>${shardWords[s.state] || s.state}<//>${s.full ? html` <${Badge} kind="bad">full<//>` : ""}`],
      ["Leader", (s) => s.leader || html`<span class="muted">none</span>`],
      ["Replicas", (s) => (s.replicas || []).join(", ")],
      ["Epoch", (s) => num(s.epoch), "right"],
    ]} />${shards.length > 500 && html`<p class="muted">The first 500 of ${num(shards.length)}.</p>`}<//></div>`;
}
