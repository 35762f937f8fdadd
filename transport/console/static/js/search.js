// Find a timer by its id, by how that begins, or by a label. An id that one timer has opens it.
import { get, html, many, num, timerLink, timerPath, topicPath, useEffect, useLoad, useState } from "./lib.js";
import { Card, Empty, Failed, Labels, State, Table, Waits, When } from "./parts.js";

const everyState = "scheduled,leased,done,dead,cancelled";
const pageOfTopics = 1000, atOnce = 6, mostFound = 200;
const idChars = /^\{?[A-Za-z0-9_.:@-]+\}?[A-Za-z0-9_.:@-]*$/, labelChars = /^[A-Za-z0-9_.:=-]{1,64}$/;

// inTopics asks one thing of each topic, a few at a time, until enough is found. A topic that is
// gone, or a text that can be no id, finds nothing.
async function inTopics(topics, ask) {
  const left = [...topics], found = [];
  await Promise.all(Array.from({ length: atOnce }, async () => {
    while (left.length && found.length < mostFound) {
      found.push(...await ask(left.shift().topic).catch((e) => { if (e.status === 404 || e.status === 400) return []; throw e; }));
    }
  }));
  return found;
}

// find looks for an id first, in the history too, topic by topic until it is found: O(topics) small
// questions. Only if no timer has it, for ids that begin so and for labels, in the first topics.
async function find(q, signal, progress) {
  const page = (cursor) => get("/v1/topics", { limit: pageOfTopics, cursor }, signal);
  const { topics, next_cursor: more } = await page();
  const withId = (some) => inTopics(some, (topic) => get(timerPath(topic, q), {}, signal).then((t) => [t]));
  const list = (topic, params) => get(`${topicPath(topic)}/timers`, { state: everyState, limit: 50, payload: false, ...params }, signal).then((r) => r.timers);
  let found = idChars.test(q) ? await withId(topics) : [], asked = topics.length, rest = more;
  while (idChars.test(q) && rest && !found.length) {
    progress(asked);
    const next = await page(rest);
    found = await withId(next.topics);
    asked += next.topics.length;
    rest = next.next_cursor;
  }
  const exact = found.length > 0;
  if (!exact && idChars.test(q)) found = await inTopics(topics, (topic) => list(topic, { id_prefix: q }));
  if (!exact && labelChars.test(q)) found.push(...await inTopics(topics, (topic) => list(topic, { label: q })));
  const unique = [...new Map(found.map((t) => [`${t.topic}/${t.id}`, t])).values()].sort((a, b) => a.due_ms - b.due_ms);
  return { found: unique.slice(0, mostFound), exact, topics: topics.length, asked, left: Boolean(exact ? rest : more) };
}

export function Search({ q }) {
  const [asked, progress] = useState(0);
  const { data, error, loading, again } = useLoad((signal) => find(q, signal, progress), [q]);
  const only = data && data.exact && data.found.length === 1 && timerLink(data.found[0].topic, data.found[0].id);
  useEffect(() => { if (only) location.replace(only); }, [only]);
  return html`<div class="stack"><h1>Timers found for “${q}”</h1>
    <${Failed} error=${error} again=${again} />
    ${loading && !data && html`<p class="muted">Searching …${asked ? ` No timer of ${num(asked)} topics has this id so far.` : ""}</p>`}
    ${data && html`<${Card}>${data.found.length ? html`<${Table} rows=${data.found} keyOf=${(t) => t.topic + "/" + t.id} caption="Found" columns=${[
      ["Timer", (t) => html`<a href=${timerLink(t.topic, t.id)}><b>${t.id}</b></a>`], ["Topic", (t) => t.topic], ["State", (t) => html`<${State} of=${t.state} />`],
      ["Due", (t) => html`<${When} ms=${t.due_ms} />`], ["Waits for", (t) => html`<${Waits} t=${t} />`], ["Attempts", (t) => num(t.attempts), "right"], ["Labels", (t) => html`<${Labels} of=${t.labels} />`]]} />`
      : html`<${Empty}>No timer in ${many(data.topics, "topic")} has an id that begins with this, or this label. Timers that ended before their topic's history begins are not found.<//>`}
      ${data.left && (data.exact ? html`<p class="muted">Found in the first ${num(data.asked)} topics. A topic behind them may have a timer with this id, too.</p>`
        : html`<p class="muted">${idChars.test(q) ? html`No timer of ${num(data.asked)} topics has this id. ` : ""}For ids that begin so and for labels, only the first ${num(data.topics)} topics were searched. Open a topic to search there.</p>`)}<//>`}</div>`;
}
