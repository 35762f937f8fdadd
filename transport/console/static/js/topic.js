// One topic: its policy, what waits in it, and what can be done with it.
import { addCommand, call, clock, get, html, many, may, num, query, span, timerLink, topicPath, useEffect, useLoad, useState } from "./lib.js";
import { Action, Badge, Card, Empty, Failed, Figure, Labels, Pages, say, State, Table, Url, usePages, Waits, waits, When } from "./parts.js";
import { Bulk } from "./bulk.js";
import { AddTimer } from "./forms.js";
import { DueChart } from "./due.js";
import { Events } from "./live.js";
import { policyWords } from "./topics.js";
import { DeleteTopic, EditTopic, Signers } from "./topicform.js";

export function TimerTable({ timers }) {
  return html`<${Table} rows=${timers} keyOf=${(t) => t.uid} caption="Timers" columns=${[
    ["Timer", (t) => html`<a href=${timerLink(t.topic, t.id)}><b>${t.id}</b></a>`],
    ["State", (t) => html`<${State} of=${t.state} />`],
    ["Due", (t) => html`<${When} ms=${t.due_ms} />`],
    ["Waits for", (t) => html`<${Waits} t=${t} />`],
    ["Attempts", (t) => num(t.attempts), "right"],
    ["Last answer", (t) => html`<span class="small">${t.last_error || t.last_status || ""}</span>`],
    ["Labels", (t) => html`<${Labels} of=${t.labels} />`],
  ]} />`;
}

// filterWords says which timers a filter selects.
function filterWords(topic, f, labels) {
  const states = f.state === "scheduled" ? "waiting timers" : f.state === "leased" ? "running timers" : "waiting and running timers";
  const more = [f.id_prefix && `whose id begins with “${f.id_prefix}”`, labels && `labelled ${labels.join(" and ")}`, f.due_from && `due from ${clock(Number(f.due_from))} to ${clock(Number(f.due_to))}`].filter(Boolean);
  return `All ${states} of topic ${topic}${more.length ? ` ${more.join(", ")}` : ""}.`;
}

function Timers({ topic, policy, params, version, changed }) {
  const [filter, set] = useState({ state: params.state || "scheduled,leased", id_prefix: params.id_prefix || "", label: params.label || "", due_from: params.due_from, due_to: params.due_to });
  const pages = usePages(), { cursor } = pages, labels = filter.label ? filter.label.split(/[\s,]+/) : undefined;
  const change = (name) => (e) => { pages.reset(); set({ ...filter, [name]: e.target.value.trim() }); };
  const { data, error, again } = useLoad((s) => get(`${topicPath(topic)}/timers`, { ...filter, label: labels, cursor, limit: 50, payload: false }, s), [topic, JSON.stringify(filter), cursor, version], 5000);
  return html`<${Card} title="Timers"><div class="filters">
      <label class="field">State <select value=${filter.state} onChange=${change("state")}>
        <option value="scheduled,leased">waiting or running</option><option value="done,cancelled">done or cancelled recently</option><option value="dead">dead</option><option value="scheduled,leased,done,dead,cancelled">all</option></select></label>
      <label class="field">Id begins with <input value=${filter.id_prefix} spellcheck="false" onInput=${change("id_prefix")} /></label>
      <label class="field">Labels <input name="label" value=${filter.label} spellcheck="false" onInput=${change("label")} /></label>
      ${filter.due_from && html`<button onClick=${() => { pages.reset(); set({ ...filter, due_from: undefined, due_to: undefined }); }}>Any due time</button>`}</div>
    <${Failed} error=${error} again=${again} />
    ${data && (data.timers.length ? html`<${TimerTable} timers=${data.timers} />` : html`<${Empty}>No timers match. To add one: <code>${addCommand(topic, policy, ` --payload '{"n":1}'`)}</code><//>`)}
    ${data && html`<${Pages} pages=${pages} next=${data.next_cursor} />`}
    ${data && data.timers.length > 0 && filter.state === "scheduled,leased" && html`<${Bulk} topic=${topic} filter=${{ ...filter, label: labels, due_from: filter.due_from && Number(filter.due_from), due_to: filter.due_to && Number(filter.due_to) }} words=${filterWords(topic, filter, labels)} done=${() => { again(); changed(); }} />`}<//>`;
}

// sentences says a policy in words; what is not mentioned is in the JSON below.
function sentences(p) {
  const r = p.retry || {}, b = p.breaker || {};
  return [
    ["Delivery", p.delivery === "pull" ? `consumers pull its timers and lease them for ${p.lease}` : html`calls ${p.callback && p.callback.url ? html`<${Url}>${p.callback.url}<//>` : "the URL of each timer"}${p.ack === "report" ? "; receivers may answer 202 and report later" : ""}`],
    ["Retries", r.max_attempts === 1 ? "none: one attempt" : `${num(r.max_attempts)} attempts, waiting from ${r.min_backoff} to ${r.max_backoff}`],
    ["Order", p.serial ? (p.key ? `one at a time, in order (key ${p.key})` : "one at a time for each key") : "none: timers run independently"],
    ...(p.window ? [["Window", windowWords(p.window)]] : []),
    ...(p.batch ? [["Calls", `up to ${num(p.batch.max)} timers${p.batch.by === "key" ? " of one key" : ""} in a call${p.batch.wait === "0s" ? "" : `, which waits ${p.batch.wait} for more`}`]] : []),
    ["Limits", [p.concurrency ? `${num(p.concurrency)} at once` : "", p.rate ? `${p.rate.per_second} per second` : "", p.per_key ? perKeyWords(p.per_key) : "", p.spread && p.spread !== "0s" ? `spread over ${p.spread}` : ""].filter(Boolean).join(", ") || "none"],
    ["Breaker", b.failures ? `opens for ${b.open} after ${b.failures} failures within ${b.window}` : "shared by all topics that call the receiver"],
    ...(p.on_done || p.on_dead ? [["Outcomes", [p.on_done ? `done timers go to ${p.on_done.topic}` : "", p.on_dead ? `dead timers go to ${p.on_dead.topic}` : ""].filter(Boolean).join(", ")]] : []),
    ["Retention", `history ${p.history}, dead letters ${p.dead_retention}`],
  ];
}

const perKeyWords = (k) => [k.concurrency ? `${num(k.concurrency)} at once per key` : "", k.rate ? `${k.rate.per_second} per second per key` : "", k.fair ? "keys take turns" : ""].filter(Boolean).join(", ");

const windowWords = (w) => `${w.days || "every day"} ${w.from || "00:00"}–${w.to || "24:00"} ${w.zone || "UTC"}${w.except ? `, not on ${w.except.join(", ")}` : ""}`;

// waitWords says what a topic's due timers wait for.
const waitWords = (waiting) => Object.entries(waiting || {}).map(([cause, n]) => `${num(n)} for ${waits[cause] || cause}`).join(", ");

// creatable reports whether an add by this token creates the topic that was not found.
const creatable = (error) => error && error.status === 404 && may("add") && may("topics") && !/this token reaches/.test(error.message);

export function Topic({ topic, params }) {
  const path = topicPath(topic);
  const { data: t, error, again } = useLoad((s) => get(path, {}, s), [path], 3000);
  const [version, setVersion] = useState(0);
  const [live, setLive] = useState(false);
  useEffect(() => setLive(false), [topic]);
  const added = () => { again(); setVersion(version + 1); };
  if (!t) return html`<div class="stack"><h1>${topic}</h1>${creatable(error) ? html`<${Card}><${Empty}>There is no topic <b>${topic}</b>. Adding a timer creates it: <code>carillon ctl add ${topic} --delay 1m --callback http://127.0.0.1:7780/</code><//><//>` : html`<${Failed} error=${error} again=${again} />`}</div>`;
  const c = t.counts;
  const pause = (verb, word) => async () => { await call("POST", `${path}/${verb}`, {}); say(`${topic} ${word}.`); added(); };
  return html`<div class="stack">
    <div class="between"><div><p class="muted small"><a href="#/topics">Topics</a> /</p><h1>${topic} ${t.paused && html`<${Badge} kind="warn">paused<//>`}</h1><p class="muted small">${policyWords(t)}</p></div>
      <div class="row"><${AddTimer} topic=${topic} done=${added} pull=${t.policy.delivery === "pull"} />
        <${EditTopic} t=${t} done=${added} />
        ${t.paused ? html`<${Action} needs="admin" label="Resume" ask=${false} run=${pause("resume", "resumed. Timers that are due are called now")} />`
    : html`<${Action} needs="admin" label="Pause" title=${`Pause ${topic}?`} verb="Pause" danger run=${pause("pause", "paused")}><p>Timers that come due wait until you resume the topic. ${many(c.scheduled, "timer is", "timers are")} scheduled now.</p><//>`}
        <${DeleteTopic} t=${t} /></div></div>
    <${Failed} error=${error} again=${again} />
    <div class="figures"><${Figure} value=${c.scheduled} name="scheduled" /><${Figure} value=${c.ready} name="due and waiting" /><${Figure} value=${c.leased} name="running" />
      <${Figure} value=${c.dead} name="dead letters" href=${`#/dead${query({ topic })}`} /><${Figure} value=${t.oldest_overdue_ms ? span(t.oldest_overdue_ms) : "–"} name="oldest waiting" /></div>
    ${c.waiting && html`<p class="muted">Waiting: ${waitWords(c.waiting)}.</p>`}
    <${Timers} topic=${topic} policy=${t.policy} params=${params} version=${version} changed=${again} />
    <div class="cards"><${Card} title="Due in the next hour" side=${html`<a href=${`#/due${query({ topic })}`}>more</a>`}><${DueChart} topic=${topic} policy=${t.policy} spanMs=${3600000} buckets=${60} /><//>
      <${Card} title="Policy"><dl class="facts">${sentences(t.policy).map(([name, text]) => html`<dt key=${name}>${name}</dt><dd>${text}</dd>`)}</dl>
        <${Signers} t=${t} kind="secrets" done=${added} /><${Signers} t=${t} kind="signing_keys" done=${added} /><details><summary>Policy as JSON</summary><pre>${JSON.stringify(t.policy, null, 2)}</pre></details><//></div>
    ${live ? html`<${Events} params=${{ topic }} title="Live events" />` : html`<div><button onClick=${() => setLive(true)}>Show live events of ${topic}</button></div>`}
  </div>`;
}
