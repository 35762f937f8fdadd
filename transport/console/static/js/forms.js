// Forms that add or change a timer.
import { call, html, timerPath, topicPath } from "./lib.js";
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

// bodyOf puts a payload, as it was written, beside the other fields.
function bodyOf(fields, payload) {
  const text = JSON.stringify(fields);
  if (payload === undefined) return text;
  return `${text.slice(0, -1)}${text === "{}" ? "" : ","}"payload":${payload}}`;
}

export function AddTimer({ topic, done, pull }) {
  return html`<${Action} class="main" label="Add a timer" title=${`Add a timer to ${topic}`} verb="Add" run=${async (form) => {
    const fields = { delay: form.get("delay").trim() };
    const id = form.get("id").trim(), url = (form.get("url") || "").trim(), labels = form.get("labels").trim(), payload = form.get("payload").trim();
    if (id) fields.id = id;
    if (url) fields.callback = { url };
    if (labels) fields.labels = labels.split(/[\s,]+/);
    const t = await call("POST", `${topicPath(topic)}/timers`, bodyOf(fields, payload ? jsonOf(payload) : undefined));
    say(`Timer ${t.id} is added.`);
    done();
  }}>
    <label class="field">Id, if it is to have one of yours <input name="id" spellcheck="false" maxlength="128" /></label>
    <label class="field">In <input name="delay" required value="5m" spellcheck="false" placeholder="5m, 1h30m, 72h" /></label>
    ${!pull && html`<label class="field">Call this address; the topic's without <input name="url" type="url" spellcheck="false" placeholder="http://127.0.0.1:7780/" /></label>`}
    <label class="field">Labels <input name="labels" spellcheck="false" /></label>
    <label class="field">Payload, JSON <textarea name="payload" spellcheck="false"></textarea></label><//>`;
}

export function ChangeTimer({ t, raw, done }) {
  const hasJSON = t.payload !== undefined || t.payload_base64 === undefined;
  return html`<${Action} label="Change" title=${`Change ${t.id}`} verb="Change" run=${async (form) => {
    const fields = {};
    const due = form.get("due"), payload = hasJSON ? form.get("payload").trim() : raw;
    if (due !== local(t.due_ms)) fields.at_ms = momentOf(due);
    const changed = payload !== raw;
    if (!changed && !("at_ms" in fields)) throw new Error("Nothing is changed.");
    if (changed && !payload) throw new Error("A payload cannot be taken away here, only replaced.");
    await call("PATCH", timerPath(t.topic, t.id), bodyOf(fields, changed ? jsonOf(payload) : undefined), { headers: { "If-Match": `"${t.version}"` } });
    say(`${t.id} is changed.`);
    done();
  }}>
    <label class="field">Due <input name="due" type="datetime-local" step="1" required defaultValue=${local(t.due_ms)} value=${local(t.due_ms)} /></label>
    ${hasJSON ? html`<label class="field">Payload, JSON <textarea name="payload" spellcheck="false" defaultValue=${raw}>${raw}</textarea></label>` : html`<p class="muted">Its payload is binary: change it with carillon ctl.</p>`}
    <p class="muted small">Refused if somebody else changes it meanwhile (version ${t.version}).</p><//>`;
}
