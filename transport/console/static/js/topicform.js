// The form of a topic's policy, to create a topic or to edit one, and what removes a topic.
import { call, html, many, num, topicLink, topicPath, useState } from "./lib.js";
import { Action, Input, say } from "./parts.js";

const delivers = ["push", "pull"], rules = ["reject", "keep", "replace", "debounce", "collect"], yes = ["no", "yes"], choice = ["", "yes", "no"];

// The policy's fields: path, label, kind of input ("number", "list" of numbers, "dates", "headers",
// "rate": a number and a burst, or options), hint.
const basic = [
  ["delivery", "Delivery", delivers], ["callback.url", "URL", "", "for timers without their own"],
  ["callback.method", "Method", ["POST", "PUT", "PATCH", "GET", "DELETE"]], ["callback.timeout", "Timeout", "", "10s"],
  ["retry.max_attempts", "Attempts", "number", "16"], ["retry.min_backoff", "First backoff", "", "1s"], ["retry.max_backoff", "Longest backoff", "", "1h"],
  ["concurrency", "Concurrency", "number", "no limit"], ["rate.per_second", "Calls per second", "number", "no limit"], ["rate.burst", "Burst", "number"],
];
const further = [
  ["callback.headers", "Headers", "headers", "Name: value"],
  ["serial", "One at a time per key", yes], ["key", "Default key"],
  ["per_key.concurrency", "Per key: concurrency", "number", "no limit"], ["per_key.rate", "Per key: calls per second, burst", "rate", "no limit"], ["per_key.fair", "Keys take turns", choice],
  ["ack", "Acknowledgement", ["response", "report"]], ["lease", "Lease", "", "30s"],
  ["stop_on", "Stop retries on status", "list", "410"], ["spread", "Spread", "", "0s"],
  ["merge", "If the id is scheduled already", rules], ["dedup", "Ids that are made", ["id", "content"]], ["max_wait", "Longest wait (debounce, collect)"], ["collect_max", "Collect at most", "number", "1000"], ["if_late", "If the time is past", ["fire", "reject"]],
  ["breaker.failures", "Breaker: failures", "number", "5"], ["breaker.window", "Breaker: window", "", "10s"], ["breaker.open", "Breaker: open for", "", "5s"],
  ["window.days", "Call window: days", "", "mon-fri"], ["window.from", "Call window: from", "", "08:00"], ["window.to", "Call window: until", "", "20:00"], ["window.zone", "Call window: time zone"], ["window.except", "Call window: closed on", "dates", "2026-12-25"],
  ["batch.max", "Batch: timers per call", "number", "1"], ["batch.wait", "Batch: wait", "", "0s"], ["batch.by", "Batch: by", ["topic", "key"]],
  ["breaker.probes", "Breaker: probes", "number", "1"],
  ["destination_concurrency", "Concurrent calls per node", "number", "256"],
  ["on_done.topic", "Topic for done timers", "", "topic"], ["on_dead.topic", "Topic for dead timers", "", "topic"],
  ["history", "Keep history", "", "72h"], ["dead_retention", "Keep dead letters", "", "720h"],
  ["format", "Format of calls", ["plain", "cloudevents"]], ["answers", "Keep receivers' answers", ["failed", "none"]],
];

// textAt is a field of a policy as the form shows it.
function textAt(policy, path, kind) {
  const v = path.split(".").reduce((at, name) => (at || {})[name], policy);
  if (kind === yes) return v ? "yes" : "no";
  if (kind === choice) return v === undefined ? "" : v ? "yes" : "no";
  if (kind === "rate") return v ? `${v.per_second} ${v.burst}` : "";
  if (kind === "headers") return Object.entries(v || {}).map(([name, value]) => `${name}: ${value}`).join("\n");
  return v === undefined ? "" : Array.isArray(v) ? v.join(" ") : String(v);
}

// valueOf is what the form's text stands for; null is the default.
function valueOf(text, label, kind) {
  if (kind === yes) return text === "yes";
  if (!text) return null;
  if (kind === choice) return text === "yes";
  if (kind === "dates") return text.split(/[\s,]+/);
  if (kind === "list") return text.split(/[\s,]+/).map(Number);
  if (kind === "headers") return Object.fromEntries(text.split("\n").filter((l) => l.trim()).map((l) => { const at = l.indexOf(":"); if (at < 1) throw new Error(`${l}: a header is written as “Name: value”.`); return [l.slice(0, at).trim(), l.slice(at + 1).trim()]; }));
  if (kind === "rate") { const [rate, burst] = text.split(/[\s,]+/).map(Number); return burst === undefined ? { per_second: rate } : { per_second: rate, burst }; }
  if (kind !== "number") return text;
  if (!Number.isFinite(Number(text))) throw new Error(`${label}: ${text} is not a number.`);
  return Number(text);
}

// changes are the fields of the form that differ from the policy's. Where all of a group become
// empty that has no default, the group itself is reset.
function changes(form, policy) {
  const patch = {};
  for (const [path, label, kind] of [...basic, ...further]) {
    const text = (form.get(path) || "").trim().replaceAll("\r\n", "\n");
    if (text === textAt(policy, path, kind)) continue;
    const [group, name] = path.split("."), value = valueOf(text, label, kind);
    if (name) (patch[group] ||= {})[name] = value; else patch[group] = value;
  }
  for (const group of ["window", "rate", "per_key", "on_done", "on_dead"]) {
    const left = { ...policy[group], ...patch[group] };
    if (patch[group] && Object.values(left).every((v) => v === null)) patch[group] = null;
  }
  if (patch.rate && patch.rate.per_second === null) patch.rate = null; // its burst alone means nothing
  if (patch.batch && patch.batch.max === null) patch.batch = null;
  return patch;
}

const withoutNulls = (o) => Object.fromEntries(Object.entries(o).filter(([, v]) => v !== null).map(([k, v]) => [k, v && typeof v === "object" && !Array.isArray(v) ? withoutNulls(v) : v]));

const Fields = ({ of, policy }) => html`<div class="pair">${of.map(([path, label, kind, hint]) => html`<${Input} key=${path} name=${path} full=${path === "callback.url" || kind === "headers"} label=${label} placeholder=${hint}
  kind=${kind === "headers" ? "area" : Array.isArray(kind) ? kind : ""} value=${textAt(policy, path, kind)} />`)}</div>`;

function PolicyFields({ policy }) {
  return html`<${Fields} of=${basic} policy=${policy} /><details><summary>More settings</summary><${Fields} of=${further} policy=${policy} /></details>
    <p class="muted small">Leave a field empty to use its default. Durations: 30s, 5m, 1h30m, 30d.</p>`;
}

export function NewTopic({ done }) {
  return html`<${Action} needs="admin" label="New topic" title="New topic" verb="Create" wide run=${async (form) => {
    const topic = form.get("topic").trim(), path = topicPath(topic);
    // The server refuses some characters as a path's before it looks at the name.
    if (!/^[A-Za-z0-9][A-Za-z0-9_.-]*$/.test(topic)) throw new Error("Name: 1–128 of A-Z a-z 0-9 _ . -, starting with a letter or digit");
    await call("PUT", path, withoutNulls(changes(form, defaults)), { headers: { "If-None-Match": "*" } })
      .catch((e) => { throw e.status === 412 ? new Error(`There is a topic ${topic} already. Open it to edit its policy.`) : e; });
    say(`Topic ${topic} created.`);
    if (done) done();
    location.hash = topicLink(topic);
  }}><${Input} name="topic" label="Name" required maxlength="128" /><${PolicyFields} policy=${defaults} /><//>`;
}

// What selects show for a new topic: the defaults, so that nothing is sent for them.
const defaults = { delivery: "push", callback: { method: "POST" }, serial: false, ack: "response", merge: "reject", if_late: "fire", dedup: "id", format: "plain", answers: "failed" };

export function EditTopic({ t, done }) {
  return html`<${Action} needs="admin" label="Edit" title=${`Edit ${t.topic}`} verb="Save" wide force=${{ in_use: "Save it anyway. Timers that need the old value will wait." }} run=${async (form) => {
    const patch = changes(form, t.policy);
    if (!Object.keys(patch).length) throw new Error("Nothing is changed.");
    const r = await call("PATCH", topicPath(t.topic) + (form.get("force") ? "?force=true" : ""), patch, { headers: { "If-Match": `"${t.version}"` } });
    say(`Topic ${t.topic} saved.${r.without_url ? ` ${many(r.without_url, "timer has", "timers have")} no URL now and will wait.` : ""}`, r.without_url ? "warn" : "ok");
    done();
  }}><${PolicyFields} policy=${t.policy} /><//>`;
}

// What signs calls: the policy's field, the path, and words.
const signers = {
  secrets: { path: "secrets", title: "Signing secrets", one: "secret", none: "None: calls are not signed.", once: " The new secret is shown once." },
  signing_keys: { path: "signing-keys", title: "Signing keys (ed25519)", one: "key", none: "None: calls have no ed25519 signature.", once: " The node keeps the private key. Receivers need the public key, which is shown here." },
};

// Signers rotates the secrets or the keys of a topic: the old and the new one sign until all
// receivers know the new one.
export function Signers({ t, kind, done }) {
  const { path, title, one, none, once } = signers[kind], list = t.policy[kind] || [], url = `${topicPath(t.topic)}/${path}`;
  const [secret, setSecret] = useState("");
  const act = (verb, words) => async () => { setSecret((await call("POST", `${url}/${verb}`, {})).secret || ""); say(words); done(); };
  return html`<h3>${title}</h3>${list.length ? html`<ul class="plain">${list.map((s) => html`<li key=${s} class="mono">${s}</li>`)}</ul>` : html`<p class="muted">${none}</p>`}
    ${secret && html`<p class="notice warn">Copy the new secret now. It is not shown again: <code>${secret}</code></p>`}
    <div class="row">${list.length < 3 && html`<${Action} needs="admin" label=${`${list.length ? "Rotate" : "Create"} ${one}`} title=${`Create a new signing ${one}?`} verb=${`Create ${one}`} run=${act("rotate", `The new ${one} signs calls.`)}>
      <p>${list.length ? `Calls are signed with the old and the new ${one} until you finish the rotation.` : "From now on, calls are signed."}${once}</p><//>`}
    ${list.length > 1 && html`<${Action} needs="admin" label=${`Finish ${one} rotation`} title="Finish the rotation?" verb="Finish" danger run=${act("finish", `Only the newest ${one} signs calls.`)}><p>Only the newest ${one} stays. Receivers that do not have it will refuse calls.</p><//>`}</div>`;
}

export function DeleteTopic({ t }) {
  return html`<${Action} needs="admin" label="Delete" title=${`Delete topic ${t.topic}?`} verb="Delete topic" danger run=${async (form) => {
    const r = await call("DELETE", topicPath(t.topic) + (form.get("force") ? "?force=true" : ""), undefined, { headers: { "If-Match": `"${t.version}"` } });
    say(`Topic ${t.topic} deleted.${r.cancelled ? ` ${many(r.cancelled, "timer")} cancelled.` : ""}`);
    location.hash = "#/topics";
  }} force=${{ in_use: "Delete it anyway. Topics and timers that send outcomes here will send none.", not_empty: `Cancel its ${many(t.counts.scheduled + t.counts.leased, "timer")} and remove ${many(t.counts.dead, "dead letter")}.` }}>
    <p>This removes the topic and its policy. It has ${many(t.counts.scheduled, "timer")} and ${many(t.counts.dead, "dead letter")} now. If there are any, you are asked once more.</p><p>This cannot be undone.</p><//>`;
}
