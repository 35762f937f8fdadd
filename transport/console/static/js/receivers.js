// Receivers: which one is unhealthy, and what waits for it.
import { ago, get, html, may, num, span, topicLink, useLoad, useState } from "./lib.js";
import { Badge, Card, Empty, Failed, Table, Url, When } from "./parts.js";

// A closed breaker does not show that calls succeed: failures this recent are shown.
const recent = 10 * 60000;

// failing is a receiver that no call has reached for a while, whatever its breaker makes of that: a
// redirect opens none.
export const failing = (r) => r.failures >= 3;

// health is how a receiver is: kind, word, what it means. A half-open breaker that nobody calls has
// nothing to decide, until the next call.
export function health(r, now = Date.now()) {
  if (r.state === "closed" && failing(r)) return ["warn", "failing", `the last ${num(r.failures)} calls failed`];
  if (r.state === "open") return ["bad", "unhealthy", "calls are paused"];
  if (r.state === "half-open") return r.calls || r.waiting ? ["warn", "recovering", "a few calls test it"] : ["", "idle", "failed before; the next call tests it"];
  return r.failed_ms && now - r.failed_ms < recent ? ["warn", "errors", "a call failed recently"] : ["ok", "healthy", ""];
}

export const originOf = (url) => { try { return new URL(url).origin; } catch { return ""; } };
const rank = { bad: 0, warn: 1 };

// known are the fields that have a column; what else a node sends is shown as it is.
const known = ["destination", "state", "since", "since_ms", "waiting", "calls", "latency_ms", "last_error", "failed", "failed_ms", "failures", "next_probe", "next_probe_ms", "topics", "more_topics"];

const mostCallers = 8;

// Callers are the topics whose timers have called a receiver, and those whose URL is there.
function Callers({ r, counted }) {
  const urls = [...counted.values()].filter((t) => t.policy && t.policy.callback && originOf(t.policy.callback.url) === r.destination).map((t) => t.topic);
  const all = [...new Set([...(r.topics || []), ...urls])].sort(), more = all.length - mostCallers;
  const waiting = (name) => { const t = counted.get(name); return t && t.counts.ready ? html` <span class="small">${num(t.counts.ready)} waiting</span>` : ""; };
  if (!all.length) return html`<span class="small muted">none known</span>`;
  return html`${all.slice(0, mostCallers).map((name) => html`<div key=${name}><a href=${topicLink(name)}>${name}</a>${waiting(name)}</div>`)}
    ${(more > 0 || r.more_topics) && html`<div class="small muted">${r.more_topics ? "and others" : `and ${num(more)} more`}</div>`}`;
}

export function Receivers() {
  const [unhealthy, setUnhealthy] = useState(false);
  const { data, error, loading, again } = useLoad((s) => (may("cluster") ? get("/v1/destinations", { limit: 1000 }, s) : Promise.resolve(null)), [], 3000);
  const topics = useLoad((s) => get("/v1/topics", { counts: true, limit: 1000 }, s), [], 5000);
  if (error && error.status === 404) return html`<div class="stack"><h1>Receivers</h1><${Card}><${Empty}>This node's release does not list receivers yet. Its <code>/metrics</code> have the breakers (<code>carillon_breaker_state</code>), and a timer's page shows its receiver.<//><//></div>`;
  if (!may("cluster") || error && error.status === 403) return html`<div class="stack"><h1>Receivers</h1><${Card}><${Empty}>This token cannot list receivers. It needs the scope cluster. A timer's page shows its receiver.<//><//></div>`;
  const counted = new Map(((topics.data && topics.data.topics) || []).map((t) => [t.topic, t]));
  const all = (data && data.destinations) || [];
  const rankOf = (r) => rank[health(r)[0]] ?? 2;
  const list = all.filter((r) => !unhealthy || rankOf(r) < 2).sort((a, b) => rankOf(a) - rankOf(b) || (b.waiting || 0) - (a.waiting || 0));
  return html`<div class="stack"><div class="between"><h1>Receivers</h1><label class="row"><input type="checkbox" checked=${unhealthy} onChange=${(e) => setUnhealthy(e.target.checked)} /> only unhealthy ones</label></div>
    <${Failed} error=${error} again=${again} />
    ${data && data.missing && data.missing.length > 0 && html`<p class="notice warn">No answer from ${data.missing.join(", ")}. Their calls are missing here.</p>`}
    <${Card}>${loading && !data ? html`<p class="muted">Loading …</p>` : list.length ? html`<${Table} rows=${list} keyOf=${(r) => r.destination} caption="Receivers" columns=${[
      ["Receiver", (r) => html`<b><${Url}>${r.destination}<//></b>`],
      ["State", (r) => html`<${Badge} kind=${health(r)[0]}>${health(r)[1]}<//><div class="small">${health(r)[2]}</div>${r.since_ms && r.state !== "closed" ? html`<div class="small muted">for ${span(Math.max(0, Date.now() - r.since_ms))}${r.nodes && r.nodes.length ? ` on ${r.nodes.join(", ")}` : ""}</div>` : ""}`],
      ["Waiting", (r) => num(r.waiting), "right"],
      ["Running", (r) => num(r.calls), "right"],
      ["Response time", (r) => (r.latency_ms === undefined ? "–" : span(r.latency_ms)), "right"],
      ["Next retry", (r) => (r.next_probe_ms ? html`<${When} ms=${r.next_probe_ms} />` : "")],
      ["Last error", (r) => html`<span class="small">${r.last_error || ""}${r.failed_ms ? html` <span class="muted nowrap">${ago(r.failed_ms)}</span>` : ""}</span>`],
      ["Topics that call it", (r) => html`<${Callers} r=${r} counted=${counted} />${Object.entries(r).filter(([k, v]) => !known.includes(k) && typeof v !== "object").map(([k, v]) => html`<div class="small muted" key=${k}>${k.replaceAll("_", " ")} ${v}</div>`)}`],
    ]} />` : html`<${Empty}>${unhealthy && all.length ? "All receivers are healthy." : html`No calls recently. To start a test receiver: <code>carillon sink --listen 127.0.0.1:7780</code>`}<//>`}<//></div>`;
}
