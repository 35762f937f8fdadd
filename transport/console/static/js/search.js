// Find a timer by what one knows of it: its id, how that begins, or a label.
import { get, html, num, timerLink, timerPath, topicPath, useLoad } from "./lib.js";
import { Card, Empty, Failed, State, Table, When } from "./parts.js";

const everyState = "scheduled,leased,done,dead,cancelled";
const mostTopics = 200, atOnce = 6, mostFound = 200;
const idChars = /^\{?[A-Za-z0-9_.:@-]+\}?[A-Za-z0-9_.:@-]*$/, labelChars = /^[A-Za-z0-9_.:=-]{1,64}$/;

async function inTopic(topic, q, signal) {
  const found = new Map();
  const take = (list) => { for (const t of list) if (!found.has(t.id)) found.set(t.id, t); };
  const none = (e) => { if (e.status === 404 || e.status === 400) return { timers: [] }; throw e; };
  const list = (params) => get(`${topicPath(topic)}/timers`, { state: everyState, limit: 50, payload: false, ...params }, signal).catch(none);
  if (idChars.test(q)) {
    take(await get(timerPath(topic, q), {}, signal).then((t) => [t]).catch((e) => none(e).timers)); // the history is asked, too
    take((await list({ id_prefix: q })).timers);
  }
  if (labelChars.test(q)) take((await list({ label: q })).timers);
  return [...found.values()];
}

async function find(q, signal) {
  const { topics, next_cursor: more } = await get("/v1/topics", { limit: mostTopics }, signal);
  const left = [...topics], found = [];
  await Promise.all(Array.from({ length: atOnce }, async () => {
    while (left.length && found.length < mostFound) found.push(...await inTopic(left.shift().topic, q, signal));
  }));
  const rank = (t) => (t.id === q ? 0 : t.id.startsWith(q) ? 1 : 2);
  found.sort((a, b) => rank(a) - rank(b) || a.due_ms - b.due_ms);
  return { found: found.slice(0, mostFound), topics: topics.length, more: Boolean(more) };
}

export function Search({ q }) {
  const { data, error, loading, again } = useLoad((signal) => find(q, signal), [q]);
  return html`<div class="stack"><h1>Timers like “${q}”</h1>
    <${Failed} error=${error} again=${again} />
    ${loading && !data && html`<p class="muted">Looking …</p>`}
    ${data && html`<${Card}>${data.found.length ? html`<${Table} rows=${data.found} keyOf=${(t) => t.topic + "/" + t.id} caption="Found" columns=${[
      ["Timer", (t) => html`<a href=${timerLink(t.topic, t.id)}><b>${t.id}</b></a>`], ["Topic", (t) => t.topic], ["State", (t) => html`<${State} of=${t.state} />`],
      ["Due", (t) => html`<${When} ms=${t.due_ms} />`], ["Waits for", (t) => (t.waits_for ? t.waits_for.replace("_", " ") : "")], ["Attempts", (t) => num(t.attempts), "right"], ["Labels", (t) => (t.labels || []).map((l) => html`<span class="chip">${l}</span>`)]]} />`
      : html`<${Empty}>No timer in ${num(data.topics)} topics has an id that begins with this, or this as its label. What ended longer ago than its topic's history reaches is forgotten.<//>`}
      ${data.more && html`<p class="muted">Only the first ${mostTopics} topics were looked at: open the topic to search there.</p>`}<//>`}</div>`;
}
