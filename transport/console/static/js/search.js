// Find a timer by its id, by how that begins, or by a label. An id that one timer has opens it.
import { get, html, num, timerLink, timerPath, useEffect, useLoad, useState } from "./lib.js";
import { Card, Empty, Failed, Labels, State, Table, Waits, When } from "./parts.js";

const everyState = "scheduled,leased,done,dead,cancelled";
const mostFound = 200, pageOfTopics = 1000, atOnce = 6;
const idChars = /^\{?[A-Za-z0-9_.:@-]+\}?[A-Za-z0-9_.:@-]*$/, labelChars = /^[A-Za-z0-9_.:=-]{1,64}$/;

// find asks for the id first, and only if no timer has it for ids that begin so and for the label:
// three questions, however many topics there are; more where one page cannot look at all timers.
async function find(q, signal) {
  const list = async (wanted, params) => {
    const timers = [];
    let cursor = "";
    for (let more = wanted; more; more = cursor && timers.length < mostFound) {
      const page = await get("/v1/timers", { ...params, state: everyState, limit: mostFound, payload: false, cursor }, signal);
      timers.push(...page.timers);
      cursor = page.next_cursor;
    }
    return { timers, next_cursor: cursor };
  };
  const isId = idChars.test(q), exact = await list(isId, { id: q });
  if (exact.timers.length) return { found: exact.timers, exact: true };
  const answers = await Promise.all([list(isId, { id_prefix: q }), list(labelChars.test(q), { label: q })]);
  const all = new Map(answers.flatMap((a) => a.timers).map((t) => [t.uid, t]));
  const found = [...all.values()].sort((a, b) => a.due_ms - b.due_ms);
  return { found: found.slice(0, mostFound), more: found.length > mostFound || answers.some((a) => a.next_cursor) };
}

// findEnded looks for an id in the history of one topic after the other, a few at once, until one
// has it. A topic that is deleted meanwhile has nothing.
async function findEnded(q, signal, progress) {
  const found = [];
  let asked = 0, cursor = "";
  do {
    const page = await get("/v1/topics", { limit: pageOfTopics, cursor }, signal), left = page.topics;
    await Promise.all(Array.from({ length: atOnce }, async () => {
      while (left.length && !found.length) {
        const t = await get(timerPath(left.shift().topic, q), {}, signal).catch((e) => { if (e.status === 404 || e.status === 400) return null; throw e; });
        progress(++asked);
        if (t) found.push(t);
      }
    }));
    cursor = page.next_cursor;
  } while (cursor && !found.length);
  return { found, asked };
}

const Found = ({ timers }) => html`<${Table} rows=${timers} keyOf=${(t) => t.uid} caption="Found" columns=${[
  ["Timer", (t) => html`<a href=${timerLink(t.topic, t.id)}><b>${t.id}</b></a>`], ["Topic", (t) => t.topic], ["State", (t) => html`<${State} of=${t.state} />`],
  ["Due", (t) => html`<${When} ms=${t.due_ms} />`], ["Waits for", (t) => html`<${Waits} t=${t} />`], ["Attempts", (t) => num(t.attempts), "right"], ["Labels", (t) => html`<${Labels} of=${t.labels} />`]]} />`;

function Ended({ q }) {
  const [asked, progress] = useState(0);
  const { data, error, again } = useLoad((signal) => findEnded(q, signal, progress), [q]);
  const only = data && data.found.length === 1 && timerLink(data.found[0].topic, data.found[0].id);
  useEffect(() => { if (only) location.replace(only); }, [only]);
  if (error) return html`<${Failed} error=${error} again=${again} />`;
  if (!data) return html`<p class="muted">Searching the history … ${num(asked)} topics so far.</p>`;
  return data.found.length ? html`<${Found} timers=${data.found} />` : html`<${Empty}>The history of ${num(data.asked)} topics has no timer with this id.<//>`;
}

export function Search({ q }) {
  const [history, setHistory] = useState(false);
  const { data, error, loading, again } = useLoad((signal) => find(q, signal), [q]);
  const only = data && data.exact && data.found.length === 1 && timerLink(data.found[0].topic, data.found[0].id);
  useEffect(() => { if (only) location.replace(only); }, [only]);
  return html`<div class="stack"><h1>Timers found for “${q}”</h1>
    <${Failed} error=${error} again=${again} />
    ${loading && !data && html`<p class="muted">Searching …</p>`}
    ${data && html`<${Card}>${data.found.length ? html`<${Found} timers=${data.found} />` : html`<${Empty}>No timer has this label, or an id that begins with this.<//>`}
      ${data.more && html`<p class="muted">Only ${num(data.found.length)} are shown, by due time. A longer text finds fewer.</p>`}<//>
      ${!data.exact && idChars.test(q) && html`<${Card} title="Ended timers">${history ? html`<${Ended} q=${q} />`
        : html`<p>Timers that ended more than ten minutes ago are only in the history of their topic.</p><button onClick=${() => setHistory(true)}>Search the history for this id</button>`}<//>`}`}</div>`;
}
