// The cluster at a glance: is it healthy, and if not, why; how much it does; what comes next.
import { get, html, many, may, num, rate, span, useEffect, useLoad, useMemo, useRef, useState } from "./lib.js";
import { Badge, Card, Chart, Failed, Figure, waits } from "./parts.js";
import { FirstTopics, NoTopics, TopicTable } from "./topics.js";
import { backups, loadStats, NodeTable } from "./cluster.js";
import { DueChart } from "./due.js";
import { failing, health, originOf } from "./receivers.js";

const mostOfAKind = 4;

// troubles are the reasons why a cluster is not healthy, one line each, the worst first. Each: kind,
// text, what to do, where. Many of one kind become one line.
export function troubles(cluster, topics, receivers, stats) {
  const list = [], bad = "bad", warn = "warn";
  const each = (found, one, all) => { if (found.length > mostOfAKind) list.push(all(found)); else list.push(...found.map(one)); };
  const node = (kind, text, action = "Open cluster") => list.push([kind, text, action, "#/cluster"]);
  for (const n of (cluster && cluster.nodes) || []) {
    if (n.state === "down") node(bad, `Node ${n.name} is down.`, "Restart or replace it");
    else if (n.state === "suspect") node(warn, `Node ${n.name} does not answer.`);
    else if (n.state === "draining") node(warn, `Node ${n.name} is draining.`);
    else if (n.state === "drained") node(warn, `Node ${n.name} is drained and holds no shards.`, "Resume or remove it");
    if (n.unfit) node(warn, `Node ${n.name} is unfit to lead: ${n.unfit}.`);
    if (Math.abs(n.clock_offset_ms || 0) > 500) node(warn, `The clock of node ${n.name} is off by ${span(n.clock_offset_ms)}.`, "Check its time service");
  }
  const shards = (cluster && cluster.shards) || [];
  const count = (state) => shards.filter((s) => s.state === state).length;
  if (count("no_quorum")) node(bad, `${count("no_quorum")} of ${shards.length} shards have no majority. Their timers neither change nor run.`, "Start the missing nodes");
  if (count("degraded")) node(warn, `${count("degraded")} of ${shards.length} shards lack a replica or a leader.`);
  if (count("moving")) node(warn, `${count("moving")} of ${shards.length} shards are moving.`);
  const backup = backups(stats), hour = 3600000;
  if (backup && (backup.error || backup.overdue > hour)) node(backup.overdue > hour ? bad : warn, `A backup has been due for ${span(backup.overdue)} and is not made${backup.error ? `: ${backup.error}` : ""}.`);

  const waiting = (n) => (n ? ` ${many(n, "timer waits", "timers wait")} for it.` : "");
  const broken = ((receivers && receivers.destinations) || []).filter((r) => r.state !== "closed" && health(r)[0]);
  each(broken, (r) => [health(r)[0], `Receiver ${r.destination} is ${health(r)[1]}.${waiting(r.waiting)}${r.last_error ? ` Last error: ${r.last_error}.` : ""}`, "Open receivers", "#/receivers"],
    (all) => [health(all[0])[0], `${num(all.length)} receivers are unhealthy. ${many(all.reduce((a, r) => a + r.waiting, 0), "timer waits", "timers wait")} for them.`, "Open receivers", "#/receivers"]);

  const known = (topics && topics.topics) || [];
  const retrying = (r) => known.filter((t) => t.policy && t.policy.callback && originOf(t.policy.callback.url) === r.destination).reduce((a, t) => a + (((t.counts || {}).waiting || {}).backoff || 0), 0);
  const fail = ((receivers && receivers.destinations) || []).filter((r) => r.state === "closed" && failing(r));
  each(fail, (r) => [warn, `Receiver ${r.destination}: the last ${num(r.failures)} calls failed${r.last_error ? ` (${r.last_error})` : ""}.${retrying(r) ? ` ${many(retrying(r), "timer retries", "timers retry")}.` : ""}`, "Open receivers", "#/receivers"],
    (all) => [warn, `Every call to ${num(all.length)} receivers has failed for a while.`, "Open receivers", "#/receivers"]);

  const of = (t) => `#/topics/${encodeURIComponent(t.topic)}`;
  each(known.filter((t) => t.paused), (t) => [warn, `Topic ${t.topic} is paused.${t.counts && t.counts.ready ? ` ${many(t.counts.ready, "timer waits", "timers wait")}.` : ""}`, "Resume it", of(t)],
    (all) => [warn, `${num(all.length)} topics are paused.`, "Open topics", "#/topics"]);
  // What waits for a receiver alone is in the receiver's line already.
  const explained = (t) => broken.length + fail.length > 0 && Object.keys(t.counts.waiting || { none: 0 }).every((cause) => cause === "breaker" || cause === "backoff");
  each(known.filter((t) => !t.paused && t.oldest_overdue_ms > 60000 && t.counts && !explained(t)),
    (t) => [warn, `Topic ${t.topic}: ${many(t.counts.ready, "timer waits", "timers wait")}${t.counts.waiting ? ` for ${Object.keys(t.counts.waiting).map((cause) => waits[cause] || cause).join(", ")}` : ""}, the oldest for ${span(t.oldest_overdue_ms)}.`, "Open topic", of(t)],
    (all) => [warn, `${num(all.length)} topics have timers that wait, the oldest for ${span(Math.max(...all.map((t) => t.oldest_overdue_ms)))}.`, "Open topics", "#/topics"]);
  const dead = known.filter((t) => t.counts && t.counts.dead);
  if (dead.length) list.push([warn, `${many(dead.reduce((a, t) => a + t.counts.dead, 0), "dead letter")} in ${dead.length > 3 ? many(dead.length, "topic") : dead.map((t) => t.topic).join(", ")}.`, "Redrive or purge", dead.length > 1 ? "#/dead" : `#/dead?topic=${encodeURIComponent(dead[0].topic)}`]);
  return list.sort((a, b) => (a[0] === bad ? 0 : 1) - (b[0] === bad ? 0 : 1));
}

function Verdict({ cluster, list }) {
  if (!cluster) return null;
  const founded = cluster.cluster_id && cluster.nodes && cluster.nodes.length, problems = list.filter(([kind]) => kind === "bad").length, warnings = list.length - problems;
  const worst = !founded || problems ? "bad" : warnings ? "warn" : "ok";
  const head = !founded ? "This node has not joined a cluster yet." : worst === "ok" ? "Everything is healthy." : [problems && many(problems, "problem"), warnings && many(warnings, "warning")].filter(Boolean).join(", ");
  return html`<section class="card verdict ${worst}" aria-label="Health"><div class="between"><h2>${head}</h2>
    <${Badge} kind=${cluster.healthy ? "ok" : "bad"}>${cluster.healthy ? "cluster healthy" : "cluster unhealthy"}<//></div>
    ${list.length > 0 && html`<ul class="troubles">${list.map(([kind, text, action, href]) => html`<li key=${text}><${Badge} kind=${kind}>${kind === "bad" ? "problem" : "warning"}<//><span class="grow">${text}</span><a class="nowrap" href=${href}>${action}</a></li>`)}</ul>`}</section>`;
}

const rateSeries = [{ label: "adds", color: "--accent" }, { label: "calls", color: "--ok" }];
const lateSeries = [{ label: "p50", color: "--ok", value: span }, { label: "p99", color: "--warn", value: span }];

// quiet is a minute of which nothing is known.
const quiet = () => [[Date.now() / 1000 - 60, Date.now() / 1000], [null, null], [null, null]];

// useLateness keeps the percentiles that were seen while the page is open: nodes send those of the
// last minute.
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
  const topics = useLoad((s) => get("/v1/topics", { counts: true, limit: 1000 }, s), [], 5000);
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
  const list = troubles(cluster.data, topics.data, receivers.data, stats.data);
  const busy = topics.data ? [...topics.data.topics].sort((a, b) => (b.counts.ready + b.counts.dead + (b.paused ? 1 : 0)) - (a.counts.ready + a.counts.dead + (a.paused ? 1 : 0)) || b.counts.scheduled - a.counts.scheduled).slice(0, 6) : [];
  return html`<div class="stack"><h1 class="hidden">Overview</h1>
    <${Failed} error=${cluster.error || stats.error || topics.error} again=${cluster.again} />
    <${Verdict} cluster=${cluster.data} list=${list} />
    <${FirstTopics} of=${topics.data} />
    ${t && html`<div class="figures">
      <${Figure} value=${t.scheduled} name="scheduled" href="#/due" />
      <${Figure} value=${rate(t.adds_per_second)} name="adds per second" />
      <${Figure} value=${rate(t.fired_per_second)} name="calls per second" href="#/live" />
      <${Figure} value=${t.lateness_ms.count ? span(t.lateness_ms.p99) : "–"} name="p99 lateness" />
      <${Figure} value=${t.overdue} name="due and waiting" href="#/topics" />
      <${Figure} value=${t.dead} name="dead letters" href="#/dead" /></div>`}
    ${!may("cluster") && html`<p class="muted">Rates, lateness and receivers need a token with the scope <code>cluster</code>.</p>`}
    ${may("cluster") && html`<div class="cards">
      <${Card} title="Adds and calls per second"><${Chart} data=${rates} series=${rateSeries} label="Adds and calls in each of the last sixty seconds" /><//>
      <${Card} title="Lateness in the last minute"><${Chart} data=${late} series=${lateSeries} label="How late calls start: median, and 99 of 100" /><//>
    </div>`}
    <div class="cards">
      <${Card} title="Due in the next hour" side=${html`<a href="#/due">more</a>`}><${DueChart} spanMs=${3600000} buckets=${60} /><//>
      <${Card} title="Topics" side=${html`<a href="#/topics">all topics</a>`}>${topics.data && (busy.length ? html`<${TopicTable} topics=${busy} brief />` : html`<${NoTopics} />`)}<//>
    </div>
    <${Card} title="Nodes" side=${html`<a href="#/cluster">shard leaders</a>`}>${cluster.data && html`<${NodeTable} cluster=${cluster.data} stats=${stats.data} />`}<//>
  </div>`;
}
