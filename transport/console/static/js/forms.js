// Forms that add or change a timer.
import { call, clock, html, timerPath, topicPath, useState } from "./lib.js";
import { Action, say } from "./parts.js";

const pad = (n) => String(n).padStart(2, "0");
// local writes a moment as the input for date and time takes it.
export function local(ms) {
  const d = new Date(ms);
  return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}T${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
}

export function momentOf(text) {
  const ms = new Date(text).getTime();
  if (!Number.isFinite(ms)) throw new Error("Give a date and a time.");
  return ms;
}

// jsonOf checks a payload, and leaves it as it was written: numbers beyond what JavaScript holds stay what they are.
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

const times = { delay: "after a delay", at: "at a date and time", cron: "again and again, by cron", every: "again and again, every so often" };

// timeOf reads the fields that WhenFields shows.
function timeOf(form) {
  switch (form.get("time")) {
    case "at": return { at_ms: momentOf(form.get("at")) };
    case "cron": return { repeat: { cron: form.get("cron").trim(), zone: form.get("zone").trim() || "UTC" } };
    case "every": return { delay: form.get("every").trim(), repeat: { every: form.get("every").trim() } };
    default: return { delay: form.get("delay").trim() };
  }
}

function WhenFields() {
  const [time, setTime] = useState("delay");
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  return html`<label class="field">It fires <select name="time" value=${time} onChange=${(e) => setTime(e.target.value)}>${Object.entries(times).map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select></label>
    ${time === "delay" && html`<label class="field">In <input name="delay" required defaultValue="5m" spellcheck="false" placeholder="5m, 1h30m, 72h" /></label>`}
    ${time === "at" && html`<label class="field">At, by your clock <input name="at" type="datetime-local" step="1" required defaultValue=${local(Date.now() + 3600000)} /></label>`}
    ${time === "cron" && html`<label class="field">Minute, hour, day, month, weekday <input name="cron" required spellcheck="false" defaultValue="0 8 * * 1-5" class="mono" /></label>
      <label class="field">Time zone <input name="zone" required spellcheck="false" defaultValue=${zone} /></label>`}
    ${time === "every" && html`<label class="field">Every, the first time after one period <input name="every" required spellcheck="false" defaultValue="1h" placeholder="30s, 15m, 24h" /></label>`}`;
}

// AddTimer adds to the topic given; without one the form asks for it, and the first timer makes it.
export function AddTimer({ topic, done, pull }) {
  return html`<${Action} needs="add" class="main" label="Add a timer" title=${topic ? `Add a timer to ${topic}` : "Add a timer"} verb="Add" run=${async (form) => {
    const fields = timeOf(form), into = topic || form.get("topic").trim();
    const id = form.get("id").trim(), url = (form.get("url") || "").trim(), labels = form.get("labels").trim(), payload = form.get("payload").trim();
    if (id) fields.id = id;
    if (url) fields.callback = { url };
    if (labels) fields.labels = labels.split(/[\s,]+/);
    const t = await call("POST", `${topicPath(into)}/timers`, bodyOf(fields, payload ? jsonOf(payload) : undefined));
    say(`Timer ${t.id} is added: it fires ${clock(t.due_ms)}.`);
    done(t);
  }}>
    ${!topic && html`<label class="field">Topic <input name="topic" required spellcheck="false" maxlength="128" /></label>`}
    <label class="field">Id, if it is to have one of yours <input name="id" spellcheck="false" maxlength="128" /></label>
    <${WhenFields} />
    ${!pull && html`<label class="field">Address to call; if empty, the topic's <input name="url" type="url" spellcheck="false" placeholder="http://127.0.0.1:7780/" /></label>`}
    <label class="field">Labels <input name="labels" spellcheck="false" /></label>
    <label class="field">Payload, JSON <textarea name="payload" spellcheck="false"></textarea></label><//>`;
}

export function ChangeTimer({ t, raw, done }) {
  const hasJSON = t.payload !== undefined || t.payload_base64 === undefined;
  return html`<${Action} needs="add" label="Change" title=${`Change ${t.id}`} verb="Change" run=${async (form) => {
    const fields = {};
    const due = form.get("due"), payload = hasJSON ? form.get("payload").trim() : raw;
    // Compared as moments: a browser writes a time on a whole minute without its seconds.
    if (momentOf(due) !== momentOf(local(t.due_ms))) fields.at_ms = momentOf(due);
    const changed = payload !== raw.trim();
    if (!changed && !("at_ms" in fields)) throw new Error("Nothing is changed.");
    if (changed && !payload) throw new Error("A payload cannot be taken away here, only replaced.");
    await call("PATCH", timerPath(t.topic, t.id), bodyOf(fields, changed ? jsonOf(payload) : undefined), { headers: { "If-Match": `"${t.version}"` } });
    say(`${t.id} is changed.`);
    done();
  }}>
    <label class="field">Due <input name="due" type="datetime-local" step="1" required defaultValue=${local(t.due_ms)} /></label>
    ${hasJSON ? html`<label class="field">Payload, JSON <textarea name="payload" spellcheck="false" defaultValue=${raw}></textarea></label>` : html`<p class="muted">Its payload is binary: change it with carillon ctl.</p>`}
    <p class="muted small">Refused if somebody else changes it meanwhile (version ${t.version}).</p><//>`;
}
