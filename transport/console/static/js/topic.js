// One topic: its policy, what waits in it, and what can be done with it.
import { call, get, html, momentsIn, num, query, span, timerLink, topicPath, useEffect, useLoad, useState } from "./lib.js";
import { Action, Badge, Card, Empty, Failed, Figure, say, State, Table, When } from "./parts.js";
import { AddTimer } from "./forms.js";
import { DueChart } from "./due.js";
import { Events } from "./live.js";
import { policyWords } from "./topics.js";

const waits = { topic_paused: "topic is paused", breaker: "receiver is sick", backoff: "backoff", key: "another of its key", concurrency: "concurrency", rate: "rate", slots: "free calls", spread: "spread", consumer: "a consumer", zone: "a known time zone", window: "its window to open", no_callback: "a callback URL", refused_address: "an address that may be called", leader: "its shard's leader" };

export function TimerTable({ timers }) {
  return html`<${Table} rows=${timers} keyOf=${(t) => t.uid} caption="Timers" columns=${[
    ["Timer", (t) => html`<a href=${timerLink(t.topic, t.id)}><b>${t.id}</b></a>`],
    ["State", (t) => html`<${State} of=${t.state} />`],
    ["Due", (t) => html`<${When} ms=${t.due_ms} />`],
    ["Waits for", (t) => (t.waits_for ? html`${waits[t.waits_for] || t.waits_for}${t.waits_on ? html` <span class="muted small">${momentsIn(t.waits_on)}</span>` : ""}` : "")],
    ["Attempts", (t) => num(t.attempts), "right"],
    ["Last answer", (t) => html`<span class="small">${t.last_error || t.last_status || ""}</span>`],
    ["Labels", (t) => (t.labels || []).map((l) => html`<span class="chip" key=${l}>${l}</span>`)],
  ]} />`;
}

function Timers({ topic, params, version }) {
  const [filter, set] = useState({ state: params.state || "scheduled,leased", id_prefix: params.id_prefix || "", label: params.label || "", due_from: params.due_from, due_to: params.due_to });
  const [cursors, setCursors] = useState([""]);
  const cursor = cursors[cursors.length - 1];
  const change = (name) => (e) => { setCursors([""]); set({ ...filter, [name]: e.target.value.trim() }); };
  const { data, error, again } = useLoad((s) => get(`${topicPath(topic)}/timers`, { ...filter, label: filter.label ? filter.label.split(/[\s,]+/) : undefined, cursor, limit: 50, payload: false }, s), [topic, JSON.stringify(filter), cursor, version], 5000);
  return html`<${Card} title="Timers"><div class="filters">
      <label class="field">State <select value=${filter.state} onChange=${change("state")}>
        <option value="scheduled,leased">waiting or being called</option><option value="done,cancelled">done or cancelled lately</option><option value="dead">dead</option><option value="scheduled,leased,done,dead,cancelled">all</option></select></label>
      <label class="field">Id begins with <input value=${filter.id_prefix} spellcheck="false" onInput=${change("id_prefix")} /></label>
      <label class="field">Labels <input value=${filter.label} spellcheck="false" onChange=${change("label")} /></label>
      ${filter.due_from && html`<button onClick=${() => { setCursors([""]); set({ ...filter, due_from: undefined, due_to: undefined }); }}>Any due time</button>`}</div>
    <${Failed} error=${error} again=${again} />
    ${data && (data.timers.length ? html`<${TimerTable} timers=${data.timers} />` : html`<${Empty}>No timer is like that. To add one: <code>carillon ctl add ${topic} --delay 5m --payload '{"n":1}' --callback http://127.0.0.1:7780/</code><//>`)}
    ${data && (data.next_cursor || cursors.length > 1) && html`<div class="row"><button disabled=${cursors.length < 2} onClick=${() => setCursors(cursors.slice(0, -1))}>Back</button>
      <button disabled=${!data.next_cursor} onClick=${() => setCursors([...cursors, data.next_cursor])}>Next</button><span class="muted small">page ${cursors.length}</span></div>`}<//>`;
}

// sentences says a policy in words; what is not mentioned is in the JSON below.
function sentences(p) {
  const r = p.retry || {}, b = p.breaker || {};
  return [
    ["Delivery", p.delivery === "pull" ? `consumers pull its timers, leased for ${p.lease}` : `calls ${p.callback && p.callback.url ? p.callback.url : "the address that each timer has"}${p.ack === "report" ? "; receivers may answer 202 and report later" : ""}`],
    ["Retries", `${r.max_attempts} attempts, waiting from ${r.min_backoff} to ${r.max_backoff}`],
    ["Order", p.serial ? (p.key ? `one at a time, in order (key ${p.key})` : "one at a time for each key") : "none: timers do not wait for each other"],
    ...(p.window ? [["Window", windowWords(p.window)]] : []),
    ["Limits", [p.concurrency ? `${num(p.concurrency)} at once` : "", p.rate ? `${p.rate.per_second} per second` : "", p.spread && p.spread !== "0s" ? `spread over ${p.spread}` : ""].filter(Boolean).join(", ") || "none"],
    ["Breaker", b.failures ? `${b.failures} failures within ${b.window} open it for ${b.open}` : "the destination's"],
    ["Kept", `history ${p.history}, dead letters ${p.dead_retention}`],
  ];
}

const windowWords = (w) => `${w.days || "every day"} ${w.from || "00:00"}–${w.to || "24:00"} ${w.zone || "UTC"}${w.except ? `, not on ${w.except.join(", ")}` : ""}`;

// waitWords says what a topic's due timers wait for.
const waitWords = (waiting) => Object.entries(waiting || {}).map(([cause, n]) => `${num(n)} for ${waits[cause] || cause}`).join(", ");

export function Topic({ topic, params }) {
  const path = topicPath(topic);
  const { data: t, error, again } = useLoad((s) => get(path, {}, s), [path], 3000);
  const [version, setVersion] = useState(0);
  const [live, setLive] = useState(false);
  useEffect(() => setLive(false), [topic]);
  const added = () => { again(); setVersion(version + 1); };
  if (!t) return html`<div class="stack"><h1>${topic}</h1>${error && error.status === 404 ? html`<${Card}><${Empty}>There is no topic <b>${topic}</b>. Its first timer makes it: <code>carillon ctl add ${topic} --delay 1m --callback http://127.0.0.1:7780/</code><//><//>` : html`<${Failed} error=${error} again=${again} />`}</div>`;
  const c = t.counts;
  const pause = (verb, word) => async () => { await call("POST", `${path}/${verb}`, {}); say(`${topic} ${word}.`); added(); };
  return html`<div class="stack">
    <div class="between"><div><p class="muted small"><a href="#/topics">Topics</a> /</p><h1>${topic} ${t.paused && html`<${Badge} kind="warn">paused<//>`}</h1><p class="muted small">${policyWords(t)}</p></div>
      <div class="row"><${AddTimer} topic=${topic} done=${added} pull=${t.policy.delivery === "pull"} />
        ${t.paused ? html`<${Action} needs="admin" label="Resume" ask=${false} run=${pause("resume", "is resumed: what is due is called now")} />`
    : html`<${Action} needs="admin" label="Pause" title=${`Pause ${topic}?`} verb="Pause" danger run=${pause("pause", "is paused")}><p>Its timers come due and wait; none is called until it is resumed. ${num(c.scheduled)} are scheduled now.</p><//>`}</div></div>
    <${Failed} error=${error} again=${again} />
    <div class="figures"><${Figure} value=${c.scheduled} name="scheduled" /><${Figure} value=${c.ready} name="due and waiting" /><${Figure} value=${c.leased} name="being called" />
      <${Figure} value=${c.dead} name="dead letters" href=${`#/dead${query({ topic })}`} /><${Figure} value=${t.oldest_overdue_ms ? span(t.oldest_overdue_ms) : "–"} name="the oldest waits" /></div>
    ${c.waiting && html`<p class="muted">Due and waiting: ${waitWords(c.waiting)}.</p>`}
    <${Timers} topic=${topic} params=${params} version=${version} />
    <div class="cards"><${Card} title="Due in the next hour" side=${html`<a href=${`#/due${query({ topic })}`}>more</a>`}><${DueChart} topic=${topic} spanMs=${3600000} buckets=${60} /><//>
      <${Card} title="Policy"><dl class="facts">${sentences(t.policy).map(([name, text]) => html`<dt key=${name}>${name}</dt><dd>${text}</dd>`)}</dl>
        <details><summary>All of it</summary><pre>${JSON.stringify(t.policy, null, 2)}</pre></details><//></div>
    ${live ? html`<${Events} params=${{ topic }} title="As it happens" />` : html`<div><button onClick=${() => setLive(true)}>Show what happens in ${topic}, live</button></div>`}
  </div>`;
}
