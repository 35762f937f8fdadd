// Dead letters by reason, and to redrive a selection of them.
import { call, get, html, many, num, reasons, timerLink, topicPath, useEffect, useLoad, useState } from "./lib.js";
import { Action, Answer, Card, Empty, Failed, Input, Pages, say, Table, usePages, When } from "./parts.js";

const since = { hour: ["the last hour", 3600000], day: ["the last 24 hours", 86400000], week: ["the last 7 days", 7 * 86400000], all: ["any time", 0] };
const shown = 200;

// RedriveURL asks where to call dead letters, and redriveBody adds the answer to a selection.
export const RedriveURL = () => html`<${Input} name="url" type="url" label="Call another URL" hint="if empty, the same as before" />`;
export const redriveBody = (form, which) => ({ ...which, ...(form.get("url").trim() && { callback: { url: form.get("url").trim() } }) });

function Letters({ topic, again: topicsAgain }) {
  const [reason, setReason] = useState("");
  const [range, setRange] = useState("all");
  const [label, setLabel] = useState("");
  const [picked, setPicked] = useState(new Set());
  // The window ends where the page was opened: what dies afterwards is not redriven by surprise.
  const [to, setTo] = useState(Date.now());
  const from = since[range][1] ? to - since[range][1] : undefined;
  useEffect(() => { setTo(Date.now() + 1); setPicked(new Set()); }, [topic, reason, range, label]);
  const path = `${topicPath(topic)}/dead`;
  const { data, error, again } = useLoad((s) => get(path, { reason, from, to, label, limit: shown }, s), [path, reason, from, to, label]);
  const all = useLoad((s) => get(path, { from, to, label, limit: 1000 }, s), [path, from, to, label]);
  const tally = {};
  for (const t of (all.data && all.data.timers) || []) tally[t.reason] = (tally[t.reason] || 0) + 1;
  const more = all.data && all.data.next_cursor;
  const list = (data && data.timers) || [];
  const filter = { to };
  if (reason) filter.reason = reason;
  if (from) filter.from = from;
  if (label) filter.label = label;
  const words = [reason && ` with the reason “${reason}”`, label && ` with the label ${label}`, from && ` that died in ${since[range][0]}`].filter(Boolean).join("");
  const act = (verb, which, done) => async (form) => {
    const r = await call("POST", `${path}/${verb}`, verb === "redrive" ? redriveBody(form, which) : which);
    say(`${num(r.changed)} of ${num(r.matched)} ${done}${r.skipped ? `; ${num(r.skipped)} skipped${r.skips ? `: ${[...new Set(r.skips.map((s) => s.detail))].join("; ")}` : ""}` : ""}.`);
    setPicked(new Set());
    setTo(Date.now() + 1);
    again();
    all.again();
    topicsAgain();
  };
  const pick = (uid) => { const next = new Set(picked); next.has(uid) ? next.delete(uid) : next.add(uid); setPicked(next); };
  const count = reason ? tally[reason] || 0 : Object.values(tally).reduce((a, b) => a + b, 0);
  const howMany = `${more ? "more than " : ""}${num(count)}`, letters = `${more ? "more than " : ""}${many(count, "dead letter")}`, pickedLetters = many(picked.size, "dead letter");
  return html`<${Card} title=${`Dead letters of ${topic}`}>
    <div class="stack"><div class="tabs" role="group" aria-label="Reason"><button aria-pressed=${reason === ""} onClick=${() => setReason("")}>any reason</button>
      ${Object.entries(reasons).filter(([name]) => tally[name] || name === reason).map(([name, text]) => html`<button key=${name} aria-pressed=${reason === name} onClick=${() => setReason(name)}>${name}: ${text} (${more ? "≥ " : ""}${num(tally[name] || 0)})</button>`)}</div>
    <div class="filters"><label class="field">Died in <select value=${range} onChange=${(e) => setRange(e.target.value)}>${Object.entries(since).map(([name, [text]]) => html`<option key=${name} value=${name}>${text}</option>`)}</select></label>
      <label class="field">Label <input value=${label} spellcheck="false" onChange=${(e) => setLabel(e.target.value.trim())} /></label></div>
    <${Failed} error=${error || all.error} again=${again} />
    ${list.length > 0 && html`<div class="row">
      <${Action} needs="admin" class="main" label=${`Redrive all ${howMany}`} title=${`Redrive ${letters}?`} verb="Redrive" run=${act("redrive", { filter }, "redriven")}>
        <p>All dead letters of topic <b>${topic}</b>${words} are called again now. Their attempts start from 1.</p><${RedriveURL} /><//>
      ${picked.size > 0 && html`<${Action} needs="admin" label=${`Redrive ${picked.size} selected`} title=${`Redrive ${pickedLetters}?`} verb="Redrive" run=${act("redrive", { uids: [...picked] }, "redriven")}>
        <p>They are called again now. Their attempts start from 1.</p><${RedriveURL} /><//>
      <${Action} needs="admin" class="danger" label=${`Purge ${picked.size} selected`} title=${`Purge ${pickedLetters}?`} verb="Purge" danger run=${act("purge", { uids: [...picked] }, "purged")}>
        <p>They are removed. This cannot be undone.</p><//>`}
      <${Action} needs="admin" class="danger" label=${`Purge all ${howMany}`} title=${`Purge ${letters}?`} verb="Purge" danger run=${act("purge", { filter }, "purged")}>
        <p>All dead letters of topic <b>${topic}</b>${words} are removed. This cannot be undone.</p><//></div>
      <${Table} rows=${list} keyOf=${(t) => t.uid} caption="Dead letters" columns=${[
        [html`<input type="checkbox" aria-label="Select all that are shown" checked=${picked.size === list.length} onChange=${(e) => setPicked(new Set(e.target.checked ? list.map((t) => t.uid) : []))} />`,
          (t) => html`<input type="checkbox" aria-label=${`Select ${t.id}`} checked=${picked.has(t.uid)} onChange=${() => pick(t.uid)} />`, "pick"],
        ["Timer", (t) => html`<a href=${timerLink(t.topic, t.id)}><b>${t.id}</b></a>`], ["Reason", (t) => t.reason], ["Died", (t) => html`<${When} ms=${t.ended_ms} />`], ["Was due", (t) => html`<${When} ms=${t.due_ms} />`],
        ["Attempts", (t) => num(t.attempts), "right"], ["Last answer", (t) => t.last_status || "none"], ["Error", (t) => html`<span class="small">${t.last_error || ""}</span>${(t.attempt_log || []).map((a) => html`<${Answer} key=${a.attempt} of=${a} />`)}`]]} />
      ${data.next_cursor && html`<p class="muted">The first ${shown} are shown. “All” above includes the rest.</p>`}`}
    ${data && !list.length && html`<${Empty}>No dead letters${words}.<//>`}</div><//>`;
}

export function Dead({ params }) {
  const pages = usePages(), { cursor } = pages;
  const { data, error, again } = useLoad((s) => get("/v1/topics", { counts: true, cursor, limit: 1000 }, s), [cursor], 5000);
  const with_ = ((data && data.topics) || []).filter((t) => t.counts.dead > 0 || t.topic === params.topic);
  const topic = params.topic || (with_.length === 1 ? with_[0].topic : "");
  return html`<div class="stack"><h1>Dead letters</h1><${Failed} error=${error} again=${again} />
    ${data && (data.next_cursor || pages.number > 1) && html`<p class="muted">1,000 topics are looked at, by name: here those from ${data.topics[0]?.topic} on.</p><${Pages} pages=${pages} next=${data.next_cursor} />`}
    ${data && !with_.length && html`<${Card}><${Empty}>No dead letters. A timer becomes one when all its attempts failed, when it was too late to call, or when its receiver said stop (410).<//><//>`}
    ${with_.length > 0 && html`<div class="tabs" role="group" aria-label="Topic">${with_.map((t) => html`<a class="button" key=${t.topic} aria-current=${t.topic === topic ? "true" : undefined} href=${`#/dead?topic=${encodeURIComponent(t.topic)}`}>${t.topic} (${num(t.counts.dead)})</a>`)}</div>`}
    ${topic && html`<${Letters} key=${topic} topic=${topic} again=${again} />`}
    ${!topic && with_.length > 1 && html`<p class="muted">Choose a topic.</p>`}</div>`;
}
