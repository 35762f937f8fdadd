// Forms that add or change one timer.
import { call, clock, html, local, offset, timerPath, topicPath, useState, zone } from "./lib.js";
import { Action, Input, say } from "./parts.js";

export function momentOf(text) {
  const ms = new Date(text.trim().replace(" ", "T")).getTime();
  if (!Number.isFinite(ms)) throw new Error("Give a date and a time, like 2027-03-28 09:00:00.");
  return ms;
}

// MomentInput is text: the browser's own field shows 12 hours in some languages.
export const MomentInput = ({ label, ...more }) => html`<${Input} label=${label} hint=${`24 hours, ${zone}, ${offset()}`} placeholder="2027-03-28 09:00:00" required ...${more} />`;

// jsonOf checks a payload, and leaves it as it was written: JavaScript would round long numbers.
function jsonOf(text) {
  try { JSON.parse(text); } catch (e) { throw new Error(`The payload is not JSON: ${e.message}`); }
  return text;
}

// bodyOf adds a payload, as it was written, to the other fields.
function bodyOf(fields, payload) {
  const text = JSON.stringify(fields);
  if (payload === undefined) return text;
  return `${text.slice(0, -1)}${text === "{}" ? "" : ","}"payload":${payload}}`;
}

const labelsOf = (text) => text.split(/[\s,]+/).filter(Boolean);
const textOf = (form, name) => (form.get(name) || "").trim();
const times = { delay: "after a delay", at: "at a date and time", cron: "repeatedly, by cron", every: "repeatedly, at an interval" };

// timeOf reads the fields that WhenFields shows.
function timeOf(form) {
  switch (form.get("time")) {
    case "at": return { at_ms: momentOf(form.get("at")) };
    case "cron": return { repeat: { cron: textOf(form, "cron"), zone: textOf(form, "zone") || "UTC" } };
    case "every": return { delay: textOf(form, "every"), repeat: { every: textOf(form, "every") } };
    default: return { delay: textOf(form, "delay") };
  }
}

const cronLabel = "Minute, hour, day, month, weekday";

function WhenFields() {
  const [time, setTime] = useState("delay");
  return html`<label class="field">Runs <select name="time" value=${time} onChange=${(e) => setTime(e.target.value)}>${Object.entries(times).map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select></label>
    ${time === "delay" && html`<${Input} name="delay" label="Delay" value="5m" placeholder="5m, 1h30m, 72h, 30d" required />`}
    ${time === "at" && html`<${MomentInput} name="at" label="Date and time" value=${local(Date.now() + 3600000)} />`}
    ${time === "cron" && html`<${Input} name="cron" label=${cronLabel} value="0 8 * * 1-5" class="mono" required /><${Input} name="zone" label="Time zone" value=${zone} required />`}
    ${time === "every" && html`<${Input} name="every" label="Interval" hint="the first run is after one interval" value="1h" placeholder="30s, 15m, 24h" required />`}`;
}

// Occurrences are times to come of a series.
export const Occurrences = ({ list }) => html`<ol class="times">${list.map((ms) => html`<li key=${ms}>${local(ms)}</li>`)}</ol>`;

// previewOf shows what a dry run answered.
const previewOf = (t) => (t.next_ms ? html`<b>Next runs</b><${Occurrences} list=${t.next_ms} />` : html`It would run at <b>${clock(t.due_ms)}</b>.`);

// AddTimer adds to the topic given; without one the form asks for it, and the first timer makes it.
export function AddTimer({ topic, done, pull }) {
  const send = (form, more) => {
    const fields = timeOf(form), id = textOf(form, "id"), url = textOf(form, "url"), labels = labelsOf(textOf(form, "labels")), payload = textOf(form, "payload");
    if (id) fields.id = id;
    if (url) fields.callback = { url };
    if (labels.length) fields.labels = labels;
    if (textOf(form, "priority")) fields.priority = Number(textOf(form, "priority"));
    return call("POST", `${topicPath(topic || textOf(form, "topic"))}/timers${more}`, bodyOf(fields, payload ? jsonOf(payload) : undefined));
  };
  return html`<${Action} needs="add" class="main" label="Add timer" title=${topic ? `Add a timer to ${topic}` : "Add a timer"} verb="Add" preview=${async (form) => previewOf(await send(form, "?dry_run=true"))} run=${async (form) => {
    const t = await send(form, "");
    say(`Timer ${t.id} added. It runs at ${clock(t.due_ms)}.`);
    done(t);
  }}>
    ${!topic && html`<${Input} name="topic" label="Topic" required maxlength="128" />`}
    <${Input} name="id" label="Id" hint="optional" maxlength="128" />
    <${WhenFields} />
    ${!pull && html`<${Input} name="url" type="url" label="URL" hint="if empty, the topic's" placeholder="http://127.0.0.1:7780/" />`}
    <div class="pair"><${Input} name="labels" label="Labels" hint="optional" /><${Input} name="priority" label="Priority" hint="0 to 255" /></div>
    <${Input} kind="area" name="payload" label="Payload" hint="JSON" /><//>`;
}

// seriesOf is the form's repeat, undefined if it is what t has.
function seriesOf(form, t) {
  if (!t.repeat) return undefined;
  const next = { ...t.repeat };
  for (const name of ["cron", "zone", "every", "until"]) { if (textOf(form, name)) next[name] = textOf(form, name); else delete next[name]; }
  delete next.until_ms;
  if (textOf(form, "count")) next.count = Number(textOf(form, "count")); else delete next.count;
  const before = { ...t.repeat };
  delete before.until_ms;
  if (before.cron) before.zone ||= "UTC";
  const same = Object.keys({ ...next, ...before }).every((k) => next[k] === before[k]);
  return same ? undefined : next;
}

// SeriesFields are those of a series, which may change between cron and an interval.
function SeriesFields({ r }) {
  const [time, setTime] = useState(r.cron ? "cron" : "every");
  return html`<label class="field">Runs <select name="time" value=${time} onChange=${(e) => setTime(e.target.value)}>${["cron", "every"].map((name) => html`<option key=${name} value=${name}>${times[name]}</option>`)}</select></label>
    ${time === "cron" ? html`<div class="pair"><${Input} name="cron" label=${cronLabel} value=${r.cron || "0 8 * * 1-5"} class="mono" required /><${Input} name="zone" label="Time zone" value=${r.cron ? r.zone || "UTC" : zone} required /></div>`
    : html`<${Input} name="every" label="Interval" value=${r.every || "1h"} placeholder="30s, 15m, 24h" required />`}
    <div class="pair"><${Input} name="until" label="Until" hint="optional" value=${r.until} placeholder="2027-12-31T00:00:00Z" /><${Input} name="count" label="Number of runs" hint="optional" value=${r.count} /></div>`;
}

export function EditTimer({ t, raw, pull, done }) {
  const hasJSON = t.payload !== undefined || t.payload_base64 === undefined, url = (t.callback && t.callback.url) || "";
  const send = (form, more) => {
    const fields = {}, put = (name, before, value) => { if (textOf(form, name) !== String(before ?? "")) fields[name] = value(textOf(form, name)); };
    // Compared as moments, for the form's time has no milliseconds.
    if (momentOf(form.get("due")) !== momentOf(local(t.due_ms))) fields.at_ms = momentOf(form.get("due"));
    const payload = hasJSON ? textOf(form, "payload") : raw, changed = payload !== raw.trim();
    if (changed && !payload) throw new Error("The payload can be replaced, but not removed.");
    if (!pull && textOf(form, "url") !== url) fields.callback = { url: textOf(form, "url") || null };
    put("labels", (t.labels || []).join(" "), labelsOf);
    put("priority", t.priority, Number);
    put("expires_after", t.expires_after, (text) => text || null);
    const repeat = seriesOf(form, t);
    if (repeat) fields.repeat = repeat;
    if (!changed && !Object.keys(fields).length) throw new Error("Nothing is changed.");
    return call("PATCH", timerPath(t.topic, t.id) + more, bodyOf(fields, changed ? jsonOf(payload) : undefined), { headers: { "If-Match": `"${t.version}"` } });
  };
  return html`<${Action} needs="add" label="Edit" title=${`Edit ${t.id}`} verb="Save" preview=${async (form) => previewOf(await send(form, "?dry_run=true"))} run=${async (form) => { await send(form, ""); say(`${t.id} saved.`); done(); }}>
    <${MomentInput} name="due" label=${t.repeat ? "Next run" : "Due"} value=${local(t.due_ms)} />
    ${t.repeat && html`<${SeriesFields} r=${t.repeat} />`}
    ${!pull && html`<${Input} name="url" type="url" label="URL" hint="if empty, the topic's" value=${url} />`}
    <${Input} name="labels" label="Labels" value=${(t.labels || []).join(" ")} />
    <div class="pair"><${Input} name="priority" label="Priority" hint="0 to 255" value=${t.priority} /><${Input} name="expires_after" label="Expires after" hint="optional" value=${t.expires_after} /></div>
    ${hasJSON ? html`<${Input} kind="area" name="payload" label="Payload" hint="JSON" value=${raw} />` : html`<p class="muted">The payload is binary. Change it with carillon ctl.</p>`}
    <p class="muted small">If somebody else changes the timer first, this change is refused.</p><//>`;
}
