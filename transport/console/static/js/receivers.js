// Receivers: which one is sick, and what waits behind it.
import { ago, get, html, may, num, span, topicLink, useLoad, useState } from "./lib.js";
import { Badge, Card, Empty, Failed, Table, When } from "./parts.js";

const kinds = { closed: "ok", "half-open": "warn", open: "bad" };
const words = { closed: "well", "half-open": "being tried again", open: "sick: no calls for now" };

function originOf(url) {
  try { return new URL(url).origin; } catch { return ""; }
}

// known are the fields that have a column; what else a node sends is shown as it is.
const known = ["destination", "state", "since", "since_ms", "waiting", "calls", "latency_ms", "last_error", "failed", "failed_ms", "next_probe", "next_probe_ms"];

export function Receivers() {
  const [sick, setSick] = useState(false);
  const { data, error, loading, again } = useLoad((s) => (may("cluster") ? get("/v1/destinations", { limit: 1000 }, s) : Promise.resolve(null)), [], 3000);
  const topics = useLoad((s) => get("/v1/topics", { counts: true, limit: 1000 }, s), [], 5000);
  if (error && error.status === 404) return html`<div class="stack"><h1>Receivers</h1><${Card}><${Empty}>This node's release does not list receivers yet. Its <code>/metrics</code> have the breakers (<code>carillon_breaker_state</code>), and a timer's page says whom it waits for.<//><//></div>`;
  if (!may("cluster") || error && error.status === 403) return html`<div class="stack"><h1>Receivers</h1><${Card}><${Empty}>This token may not list receivers: that needs the scope cluster. A timer's page says whom it waits for.<//><//></div>`;
  const behind = (r) => ((topics.data && topics.data.topics) || []).filter((t) => t.policy && t.policy.callback && originOf(t.policy.callback.url) === r.destination);
  const all = (data && data.destinations) || [];
  const rank = { open: 0, "half-open": 1 };
  const list = all.filter((r) => !sick || r.state !== "closed").sort((a, b) => (rank[a.state] ?? 2) - (rank[b.state] ?? 2) || (b.waiting || 0) - (a.waiting || 0));
  return html`<div class="stack"><div class="between"><h1>Receivers</h1><label class="row"><input type="checkbox" checked=${sick} onChange=${(e) => setSick(e.target.checked)} /> only those that are not well</label></div>
    <${Failed} error=${error} again=${again} />
    ${data && data.missing && data.missing.length > 0 && html`<p class="notice warn">No answer from ${data.missing.join(", ")}: what they call is missing here.</p>`}
    <${Card}>${loading && !data ? html`<p class="muted">Loading …</p>` : list.length ? html`<${Table} rows=${list} keyOf=${(r) => r.destination} caption="Receivers" columns=${[
      ["Receiver", (r) => html`<b class="mono">${r.destination}</b>`],
      ["State", (r) => html`<${Badge} kind=${kinds[r.state]}>${words[r.state] || r.state}<//>${r.since_ms ? html`<div class="small muted">since ${ago(r.since_ms)}${r.nodes && r.nodes.length ? ` at ${r.nodes.join(", ")}` : ""}</div>` : ""}`],
      ["Waiting", (r) => num(r.waiting), "right"],
      ["Calls now", (r) => num(r.calls), "right"],
      ["Answers in", (r) => (r.latency_ms === undefined ? "–" : span(r.latency_ms)), "right"],
      ["Tried again", (r) => (r.next_probe_ms ? html`<${When} ms=${r.next_probe_ms} />` : "")],
      ["Last error", (r) => html`<span class="small">${r.last_error || ""}${r.failed_ms ? html` <span class="muted">${ago(r.failed_ms)}</span>` : ""}</span>`],
      ["What is behind it", (r) => html`${behind(r).slice(0, 8).map((t) => html`<div key=${t.topic}><a href=${topicLink(t.topic)}>${t.topic}</a>${t.counts.ready ? html` <span class="small">${num(t.counts.ready)} due and waiting</span>` : ""}</div>`)}${Object.entries(r).filter(([k, v]) => !known.includes(k) && typeof v !== "object").map(([k, v]) => html`<div class="small muted" key=${k}>${k.replaceAll("_", " ")} ${v}</div>`)}`],
    ]} />` : html`<${Empty}>${sick && all.length ? "All receivers are well." : html`Nobody was called lately. A receiver to try with: <code>carillon sink --listen 127.0.0.1:7780</code>`}<//>`}<//></div>`;
}
