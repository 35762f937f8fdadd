// The cluster at a glance: is it healthy, and if not, why; how much it does; what comes next.
import { get, html, many, may, rate, span, useEffect, useLoad, useMemo, useRef, useState } from "./lib.js";
import { Badge, Card, Chart, Failed, Figure } from "./parts.js";
import { FirstTopics, NoTopics, TopicTable } from "./topics.js";
import { loadStats, NodeTable } from "./cluster.js";
import { DueChart } from "./due.js";
import { troubles, Worst, worstOf } from "./troubles.js";

function Verdict({ cluster, list }) {
  if (!cluster) return null;
  const founded = cluster.cluster_id && cluster.nodes && cluster.nodes.length, problems = list.filter(([kind]) => kind === "bad").length, warnings = list.length - problems;
  const worst = worstOf(cluster, list);
  const head = !founded ? "This node has not joined a cluster yet." : worst === "ok" ? "Everything is healthy." : !cluster.healthy && !problems ? "The cluster is unhealthy." : [problems && many(problems, "problem"), warnings && many(warnings, "warning")].filter(Boolean).join(", ");
  return html`<section class="card verdict ${worst}" aria-label="Health"><div class="between"><h2>${head}</h2>
    <${Worst} kind=${worst} /></div>
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

// useWaits keeps how long the oldest timer of each topic has waited, while the page is open.
function useWaits(topics) {
  const seen = useRef(new Map());
  useEffect(() => {
    if (topics) seen.current = new Map(topics.topics.map((t) => [t.topic, [...(seen.current.get(t.topic) || []).slice(-59), t.oldest_overdue_ms || 0]]));
  }, [topics]);
  return seen.current;
}

export function Overview() {
  const cluster = useLoad((s) => get("/v1/cluster", {}, s), [], 3000);
  const stats = useLoad(loadStats, [], 2000);
  const topics = useLoad((s) => get("/v1/topics", { counts: true, limit: 1000 }, s), [], 5000);
  const receivers = useLoad((s) => (may("cluster") ? get("/v1/destinations", { limit: 1000 }, s) : Promise.resolve(null)), [], 5000);
  const late = useLateness(stats.data), waited = useWaits(topics.data);
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
    <${Verdict} cluster=${cluster.error ? null : cluster.data} list=${list} />
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
      <${Card} title="Topics" side=${html`<a href="#/topics">all topics</a>`}>${topics.data && (busy.length ? html`<${TopicTable} topics=${busy} late=${waited} />` : html`<${NoTopics} />`)}<//>
    </div>
    <${Card} title="Nodes" side=${html`<a href="#/cluster">shard leaders</a>`}>${cluster.data && html`<${NodeTable} cluster=${cluster.data} stats=${stats.data} />`}<//>
  </div>`;
}
