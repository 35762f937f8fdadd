// All topics, with what waits in them.
import { get, html, num, span, timerLink, topicLink, useLoad, useState } from "./lib.js";
import { Badge, Card, Empty, Failed, Pages, Spark, Table, Url, usePages } from "./parts.js";
import { AddTimer } from "./forms.js";
import { NewTopic } from "./topicform.js";

// policyWords says the most important of a policy.
export function policyWords(t) {
  const p = t.policy || {};
  const words = [p.delivery === "pull" ? "pulled by consumers" : p.callback && p.callback.url ? html`<${Url}>${p.callback.url}<//>` : "each timer has its own URL"];
  if (p.serial && p.key) words.push("in order");
  else if (p.serial) words.push("one at a time per key");
  if (p.concurrency) words.push(`${num(p.concurrency)} at once`);
  if (p.rate) words.push(`${p.rate.per_second} per second`);
  if (p.per_key && p.per_key.concurrency) words.push(`${num(p.per_key.concurrency)} at once per key`);
  if (p.per_key && p.per_key.rate) words.push(`${p.per_key.rate.per_second} per second per key`);
  return words.map((w, i) => (i ? [" · ", w] : w));
}

export const Counts = ({ t }) => {
  const c = t.counts || {};
  return html`${c.ready > 0 ? html` <${Badge} kind="warn">${num(c.ready)} waiting<//>` : ""}${c.dead > 0 ? html` <a href=${`#/dead?topic=${encodeURIComponent(t.topic)}`}><${Badge} kind="bad">${num(c.dead)} dead<//></a>` : ""}${t.paused ? html` <${Badge} kind="warn">paused<//>` : ""}`;
};

// TopicTable is brief where late has what of each topic was seen: how long its oldest timer waited.
export function TopicTable({ topics, late }) {
  const columns = [
    ["Topic", (t) => html`<a href=${topicLink(t.topic)}><b>${t.topic}</b></a>`],
    ["Status", (t) => html`<${Counts} t=${t} />`],
    ["Scheduled", (t) => num(t.counts && t.counts.scheduled), "right"],
    ["Running", (t) => num(t.counts && t.counts.leased), "right"],
    ["Oldest waiting", (t) => html`${late && html`<${Spark} values=${late.get(t.topic)} label="How long its oldest timer has waited, since this page was opened" /> `}${t.oldest_overdue_ms ? span(t.oldest_overdue_ms) : ""}`, "right"],
    ["Delivery", (t) => html`<span class="small muted">${policyWords(t)}</span>`],
  ];
  return html`<${Table} rows=${topics} keyOf=${(t) => t.topic} caption="Topics" columns=${late ? [0, 1, 2, 4].map((i) => columns[i]) : columns} />`;
}

export const NoTopics = () => html`<${Empty}>No topics yet. Adding a timer creates one:<br /><code>carillon ctl add try --delay 1m --payload '{"hello":"world"}' --callback http://127.0.0.1:7780/</code><//>`;

// FirstTopics is shown where a list of topics with their counts has more pages, which are not read.
export const FirstTopics = ({ of }) => of && of.next_cursor && html`<p class="muted">Only the first ${num(of.topics.length)} topics by name were looked at. <a href="#/topics">All topics</a></p>`;

export function Topics() {
  const [prefix, setPrefix] = useState("");
  const pages = usePages(), { cursor } = pages;
  const { data, error, loading, again } = useLoad((signal) => get("/v1/topics", { counts: true, prefix, cursor, limit: 100 }, signal), [prefix, cursor], 5000);
  const added = (t) => { location.hash = timerLink(t.topic, t.id); };
  const filter = (e) => { pages.reset(); setPrefix(e.target.value.replace(/[^A-Za-z0-9_.-]/g, "")); };
  return html`<div class="stack"><div class="between"><h1>Topics</h1>
    <div class="row end"><label class="field">Begins with <input value=${prefix} onInput=${filter} spellcheck="false" /></label><${NewTopic} /><${AddTimer} done=${added} /></div></div>
    <${Failed} error=${error} again=${again} />
    <${Card}>${loading && !data ? html`<p class="muted">Loading …</p>` : !data ? "" : data.topics.length ? html`<${TopicTable} topics=${data.topics} />` : prefix ? html`<${Empty}>No topic begins with “${prefix}”.<//>` : html`<${NoTopics} />`}
      ${data && html`<${Pages} pages=${pages} next=${data.next_cursor} />`}<//></div>`;
}
