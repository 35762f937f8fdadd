// Upcoming timers: a histogram of the next hour, night, day, month, quarter or year.
import { addCommand, clock, get, html, many, num, span, useLoad, useMemo, useState } from "./lib.js";
import { Card, Chart, Empty, Failed, Figure, Table } from "./parts.js";

// morning is the next six o'clock, here, that is an hour away at least.
function morning() {
  const six = new Date();
  six.setHours(6, 0, 0, 0);
  if (six.getTime() < Date.now() + 3600000) six.setDate(six.getDate() + 1);
  return six.getTime();
}

const dayMs = 86400000;
export const spans = { hour: ["Next hour", () => 3600000, 60], tonight: ["Tonight, until 6:00", () => morning() - Date.now(), 60, morning], day: ["Next 24 hours", () => dayMs, 48], month: ["Next 30 days", () => 30 * dayMs, 60], quarter: ["Next 90 days", () => 90 * dayMs, 90], year: ["Next year", () => 365 * dayMs, 60] };

// round are lengths that bars may have, up to a week.
const round = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 10080].map((min) => min * 60000);

// useDue counts up to the end, if that is given, else whole bars that cover the span.
function useDue(topic, spanMs, most, every, end) {
  const bar = round.find((r) => spanMs / r <= most) || round[round.length - 1], buckets = Math.ceil(spanMs / bar);
  return useLoad((s) => get("/v1/due", { topic, until: end ? end() : Date.now() + buckets * bar, buckets }, s), [topic, bar, buckets, end], every);
}

const dueSeries = [{ label: "timers", color: "--accent" }];

export function DueChart({ spanMs, buckets, topic, policy, tall, loaded }) {
  const own = loaded ? {} : useDue(topic, spanMs, buckets, 15000);
  const { data, error } = loaded || own;
  const points = useMemo(() => (data ? [data.counts.map((_, i) => (data.from_ms + i * data.bucket_ms) / 1000), data.counts] : [[], []]), [data]);
  if (error && !data) return html`<${Failed} error=${error} />`;
  const total = data ? data.counts.reduce((a, b) => a + b, 0) : 0;
  if (data && total === 0) return html`<${Empty}>No timers are due by ${clock(data.until_ms).slice(0, -4)}.${data.later ? ` ${many(data.later, "timer is", "timers are")} due later.` : html`<br />To add a timer: <code>${addCommand(topic || "try", policy)}</code>`}<//>`;
  return html`<${Chart} data=${points} series=${dueSeries} bars tall=${tall} label=${`${many(total, "timer")} to come`} />
    ${data && html`<p class="muted small">${many(total, "timer")}, ${span(data.bucket_ms)} per bar${data.overdue ? `; ${num(data.overdue)} overdue` : ""}${data.shards_counted < data.shards ? `; ${data.shards - data.shards_counted} of ${data.shards} shards could not be counted` : ""}.</p>`}`;
}

export function Due({ params }) {
  const [range, setRange] = useState(spans[params.range] ? params.range : "hour");
  const [topic, setTopic] = useState(params.topic || "");
  const topics = useLoad((s) => get("/v1/topics", { limit: 1000 }, s), []);
  const [, length, buckets, end] = spans[range];
  const spanMs = useMemo(length, [range]);
  const due = useDue(topic, spanMs, buckets, 10000, end);
  const d = due.data;
  const rows = d ? d.counts.map((n, i) => ({ n, from: d.from_ms + i * d.bucket_ms })).filter((r) => r.n > 0) : [];
  const total = rows.reduce((a, r) => a + r.n, 0);
  const peak = rows.reduce((a, r) => (r.n > a.n ? r : a), { n: 0 });
  return html`<div class="stack"><h1>Upcoming</h1>
    <div class="between"><div class="tabs" role="group" aria-label="How far ahead">${Object.entries(spans).map(([name, [text]]) => html`<button key=${name} aria-pressed=${range === name} onClick=${() => setRange(name)}>${text}</button>`)}</div>
      <label class="field">Topic <select value=${topic} onChange=${(e) => setTopic(e.target.value)}><option value="">all topics</option>
        ${((topics.data && topics.data.topics) || []).map((t) => html`<option key=${t.topic} value=${t.topic}>${t.topic}</option>`)}</select></label></div>
    <${Failed} error=${due.error} again=${due.again} />
    ${d && html`<div class="figures">
      <${Figure} value=${total} name=${`until ${clock(d.until_ms).slice(0, -4)}`} /><${Figure} value=${peak.n} name=${peak.n ? `busiest ${span(d.bucket_ms)}, from ${clock(peak.from).slice(0, -4)}` : `busiest ${span(d.bucket_ms)}`} />
      <${Figure} value=${d.overdue} name="overdue" /><${Figure} value=${d.later} name="later" /></div>`}
    <${Card} title=${spans[range][0]}><${DueChart} loaded=${due} tall /><//>
    ${rows.length > 0 && html`<details class="card"><summary>In numbers</summary><${Table} rows=${rows} keyOf=${(r) => r.from} caption="Timers that come due" columns=${[
      ["From", (r) => clock(r.from).slice(0, -4)], ["Until", (r) => clock(r.from + d.bucket_ms).slice(0, -4)], ["Timers", (r) => num(r.n), "right"],
      ["", (r) => (topic ? html`<a href=${`#/topics/${encodeURIComponent(topic)}?due_from=${r.from}&due_to=${r.from + d.bucket_ms}`}>show timers</a>` : "")]]} /></details>`}
    <p class="muted small">A repeating timer counts once, at its next run.</p></div>`;
}
