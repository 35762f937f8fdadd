// The cluster at a glance: is it well, and if not, why; how much it does; what comes next.
import { get, html, many, may, num, rate, span, useEffect, useLoad, useMemo, useRef, useState } from "./lib.js";
import { Badge, Card, Chart, Failed, Figure } from "./parts.js";
import { NoTopics, TopicTable } from "./topics.js";
import { loadStats, NodeTable } from "./cluster.js";
import { DueChart } from "./due.js";

// troubles are the reasons why a cluster is not well, in plain words. Each: kind, text, where to look.
export function troubles(cluster, stats, topics, receivers) {
  const list = [];
  for (const n of (cluster && cluster.nodes) || []) {
    if (n.state === "down") list.push(["bad", `Node ${n.name} is down.`, "#/cluster"]);
    else if (n.state === "suspect") list.push(["warn", `Nothing was heard of node ${n.name} for a moment.`, "#/cluster"]);
    else if (n.state === "draining") list.push(["warn", `Node ${n.name} is being drained.`, "#/cluster"]);
    else if (n.state === "drained") list.push(["warn", `Node ${n.name} is drained: it leads and holds nothing until it is resumed.`, "#/cluster"]);
    if (n.unfit) list.push(["warn", `Node ${n.name} should not lead: ${n.unfit}.`, "#/cluster"]);
    if (Math.abs(n.clock_offset_ms || 0) > 500) list.push(["warn", `The clock of node ${n.name} is off by ${span(n.clock_offset_ms)}.`, "#/cluster"]);
  }
  const shards = (cluster && cluster.shards) || [];
  const count = (state) => shards.filter((s) => s.state === state).length;
  if (count("no_quorum")) list.push(["bad", `${count("no_quorum")} of ${shards.length} shards have no majority: their timers neither change nor fire.`, "#/cluster"]);
  if (count("degraded")) list.push(["warn", `${count("degraded")} of ${shards.length} shards lack a replica or a leader.`, "#/cluster"]);
  if (count("moving")) list.push(["warn", `${count("moving")} of ${shards.length} shards are moving.`, "#/cluster"]);
  for (const r of (receivers && receivers.destinations) || []) if (r.state !== "closed") list.push(["warn", `Receiver ${r.destination} is sick: its breaker is ${r.state}${r.waiting ? `, and ${many(r.waiting, "timer waits", "timers wait")} for it` : ""}.`, "#/receivers"]);
  for (const t of (topics && topics.topics) || []) {
    if (t.paused) list.push(["warn", `Topic ${t.topic} is paused${t.counts && t.counts.ready ? `, and ${many(t.counts.ready, "timer of it is", "timers of it are")} due` : ""}.`, `#/topics/${encodeURIComponent(t.topic)}`]);
    else if (t.oldest_overdue_ms > 60000) list.push(["warn", `Topic ${t.topic}: ${many(t.counts.ready, "timer is", "timers are")} due and waiting, the oldest for ${span(t.oldest_overdue_ms)}.`, `#/topics/${encodeURIComponent(t.topic)}`]);
    if (t.counts && t.counts.dead) list.push(["warn", `Topic ${t.topic} has ${many(t.counts.dead, "dead letter")}.`, `#/dead?topic=${encodeURIComponent(t.topic)}`]);
  }
  return list;
}

function Verdict({ cluster, list }) {
  if (!cluster) return null;
  const founded = cluster.cluster_id && cluster.nodes && cluster.nodes.length;
  const worst = !founded || list.some(([kind]) => kind === "bad") ? "bad" : list.length ? "warn" : "ok";
  const head = !founded ? "This node is not of a cluster yet: it waits for the others, or reads its log." : worst === "ok" ? "All is well." : worst === "warn" ? "The cluster serves; something needs a look." : "Something is wrong.";
  return html`<section class="card verdict ${worst}" aria-label="Health"><div class="between"><h2>${head}</h2>
    <${Badge} kind=${cluster.healthy ? "ok" : "bad"}>${cluster.healthy ? "cluster healthy" : "cluster not healthy"}<//></div>
    ${list.length > 0 && html`<ul>${list.slice(0, 12).map(([, text, href]) => html`<li key=${text}><a href=${href}>${text}</a></li>`)}${list.length > 12 && html`<li>… and ${list.length - 12} more</li>`}</ul>`}</section>`;
}

// quiet is a minute of which nothing is known.
const quiet = () => [[Date.now() / 1000 - 60, Date.now() / 1000], [null, null], [null, null]];

// useLateness keeps the percentiles that were seen while the page is open: nodes send those of the last minute.
function useLateness(stats) {
  const seen = useRef(quiet());
  const [data, set] = useState(seen.current);
  useEffect(() => {
    if (!stats) return;
    const l = stats.total.lateness_ms, none = !l.count;
    const row = [Date.now() / 1000, none ? null : l.p50, none ? null : l.p99];
    seen.current = seen.current.map((column, i) => [...column.slice(-299), row[i]]);
    set(seen.current);
  }, [stats]);
  return data;
}

export function Overview() {
  const cluster = useLoad((s) => get("/v1/cluster", {}, s), [], 3000);
  const stats = useLoad(loadStats, [], 2000);
  const topics = useLoad((s) => get("/v1/topics", { counts: true, limit: 200 }, s), [], 5000);
  const receivers = useLoad((s) => (may("cluster") ? get("/v1/destinations", { limit: 1000 }, s) : Promise.resolve(null)), [], 5000);
  const late = useLateness(stats.data);
  const rates = useMemo(() => {
    const t = stats.data && stats.data.total;
    const n = t ? Math.max(t.added_each_second.length, t.fired_each_second.length) : 0;
    const now = Math.floor(Date.now() / 1000);
    const fill = (list) => [...Array(Math.max(0, n - list.length)).fill(null), ...list];
    return n ? [Array.from({ length: n }, (_, i) => now - n + i), fill(t.added_each_second), fill(t.fired_each_second)] : quiet();
  }, [stats.data]);
  const t = stats.data && stats.data.total;
  const list = troubles(cluster.data, stats.data, topics.data, receivers.data);
  const busy = topics.data ? [...topics.data.topics].sort((a, b) => (b.counts.ready + b.counts.dead + (b.paused ? 1 : 0)) - (a.counts.ready + a.counts.dead + (a.paused ? 1 : 0)) || b.counts.scheduled - a.counts.scheduled).slice(0, 6) : [];
  return html`<div class="stack"><h1 class="hidden">Overview</h1>
    <${Failed} error=${cluster.error || stats.error || topics.error} again=${cluster.again} />
    <${Verdict} cluster=${cluster.data} list=${list} />
    ${t && html`<div class="figures">
      <${Figure} value=${t.scheduled} name="scheduled" href="#/due" />
      <${Figure} value=${rate(t.adds_per_second)} name="adds per second" />
      <${Figure} value=${rate(t.fired_per_second)} name="calls per second" href="#/live" />
      <${Figure} value=${t.lateness_ms.count ? `${num(t.lateness_ms.p99)} ms` : "–"} name="p99 lateness" />
      <${Figure} value=${t.overdue} name="due and waiting" href="#/topics" />
      <${Figure} value=${t.dead} name="dead letters" href="#/dead" /></div>`}
    ${!may("cluster") && html`<p class="muted">Rates, lateness and receivers are of the whole cluster: they need a token with the scope <code>cluster</code>.</p>`}
    ${may("cluster") && html`<div class="cards">
      <${Card} title="Adds and calls, each second"><${Chart} data=${rates} series=${[{ label: "adds", color: "--accent" }, { label: "calls", color: "--ok" }]} label="Adds and calls in each of the last sixty seconds" /><//>
      <${Card} title="Lateness of the last minute"><${Chart} data=${late} series=${[{ label: "p50", color: "--ok", value: (v) => `${num(v)} ms` }, { label: "p99", color: "--warn", value: (v) => `${num(v)} ms` }]} label="How late calls start: median, and 99 of 100" /><//>
    </div>`}
    <div class="cards">
      <${Card} title="Due in the next hour" side=${html`<a href="#/due">more</a>`}><${DueChart} spanMs=${3600000} buckets=${60} /><//>
      <${Card} title="Topics" side=${html`<a href="#/topics">all topics</a>`}>${topics.data && (busy.length ? html`<${TopicTable} topics=${busy} brief />` : html`<${NoTopics} />`)}<//>
    </div>
    <${Card} title="Nodes" side=${html`<a href="#/cluster">who leads what</a>`}>${cluster.data && html`<${NodeTable} cluster=${cluster.data} stats=${stats.data} />`}<//>
  </div>`;
}
