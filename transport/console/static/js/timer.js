// One timer's life: what it is, what it waits for, what was tried, and what can be done.
import { ago, call, clock, get, html, momentsIn, num, open, reasons, span, timerPath, topicLink, topicPath, useLoad } from "./lib.js";
import { Action, Card, Empty, Failed, say, State, Table, When } from "./parts.js";
import { ChangeTimer } from "./forms.js";

// story says in plain words what is the matter with a timer: kind, headline, and what to do.
export function story(t, now = Date.now()) {
  const last = t.last_status ? `answered ${t.last_status}` : t.last_error ? `failed: ${t.last_error}` : "failed";
  switch (t.state) {
    case "done":
      return ["ok", t.attempts ? `It was called ${clock(t.fired_ms)}${t.attempts > 1 ? `, in attempt ${t.attempts}` : ""}${t.last_status ? `, and the receiver answered ${t.last_status}` : ""}.` : "It is done.",
        t.lateness_ms === undefined ? "" : `The first attempt started ${num(t.lateness_ms)} ms late.`];
    case "cancelled": return ["warn", "It was cancelled, and is not called.", ""];
    case "dead":
      return ["bad", `It was given up: ${reasons[t.reason] || t.reason}.`, `${t.attempts ? `The last of ${t.attempts} attempts ${last}.` : "No attempt was made."} Mend the cause, then redrive it.`];
    case "leased": return ["busy", `It is being called now: attempt ${t.attempts}${t.fired_ms ? `, begun ${ago(t.fired_ms, now)}` : ""}.`, t.waits_for === "consumer" ? "A consumer holds it." : ""];
  }
  const on = t.waits_on ? ` ${momentsIn(t.waits_on)}` : "";
  switch (t.waits_for) {
    case "topic_paused": return ["warn", "Not called, for its topic is paused.", "Resume the topic, and it is called at once."];
    case "breaker": return ["bad", `Not called, for its receiver is sick:${on || " its breaker is open"}.`, "Calls go on by themselves once the receiver answers well again."];
    case "backoff": return ["warn", `The last attempt ${last}. It is tried again ${ago(t.next_attempt_ms, now)}.`, `Attempt ${t.attempts + 1} of ${t.max_attempts}.`];
    case "key": return ["warn", `Not called yet: another timer of its key goes first${on ? `:${on}` : ""}.`, "Timers of one key are called one after the other."];
    case "concurrency": return ["warn", `Not called yet: its topic has as many calls under way as it may${on ? ` (${t.waits_on})` : ""}.`, ""];
    case "rate": return ["warn", `Not called yet: its topic's rate is used up${on ? ` (${t.waits_on})` : ""}.`, ""];
    case "slots": return ["warn", `Not called yet: all calls that may be under way to its receiver are${on ? ` (${t.waits_on})` : ""}.`, ""];
    case "zone": return ["bad", `Not called: the node that leads its shard does not know its time zone${on ? ` (${t.waits_on})` : ""}.`, "A node of a newer release does. Upgrade the nodes, or give the series another zone."];
    case "spread": return ["", "It is due, and starts within the topic's spread.", ""];
    case "zone": return ["bad", `Not called: the release of its node does not know the time zone${on}.`, "Start a release that knows it, or change the zone."];
    case "window": return ["warn", "It is due, and waits until the topic's window opens.", ""];
    case "no_callback": return ["bad", "Not called: neither it nor its topic has a callback URL.", "Give the topic a URL, or change the timer's."];
    case "refused_address": return ["bad", `The last call was not made: ${t.waits_on || t.last_error}`, "Allow the address (--callback-allow), or change the URL."];
    case "leader": return ["bad", "Not called yet: the leader of its shard cannot start calls, or has not come to it.", "See the cluster page: nodes that are down, and clocks."];
    case "consumer": return ["warn", "It is due, and waits for a consumer to pull it.", "Nobody has asked for it yet."];
  }
  const next = t.next_attempt_ms || t.due_ms;
  if (t.attempts > 0) return ["warn", `The last attempt ${last}. It is tried again ${ago(next, now)}.`, `Attempt ${t.attempts + 1} of ${t.max_attempts}.`];
  if (next > now) return ["", `It is not due yet: ${ago(next, now)}.`, ""];
  return ["warn", `It has been due for ${span(now - next)}, and is about to be called.`, ""];
}

// rawPayload is the payload as the node sent it: JavaScript would round long numbers.
export function rawPayload(text) {
  const at = text.indexOf('"payload":');
  if (at < 0) return "";
  const from = at + '"payload":'.length;
  let depth = 0, quoted = false;
  for (let i = from; i < text.length; i++) {
    const c = text[i];
    if (quoted) { if (c === "\\") i++; else if (c === '"') quoted = false; continue; }
    if (c === '"') quoted = true;
    else if (c === "{" || c === "[") depth++;
    else if (c === "}" || c === "]" || c === ",") { if (depth === 0) return text.slice(from, i); if (c !== ",") depth--; }
  }
  return "";
}

// shown is a payload with line breaks, unless it has numbers that JavaScript would round.
function shown(raw) {
  if (/\d{16}/.test(raw)) return raw;
  try { return JSON.stringify(JSON.parse(raw), null, 2); } catch { return raw; }
}

function Attempts({ list }) {
  return html`<${Table} rows=${list} keyOf=${(a) => a.attempt + "/" + a.started_ms} caption="Attempts" columns=${[
    ["Attempt", (a) => num(a.attempt)],
    ["Began", (a) => html`<${When} ms=${a.started_ms} />`],
    ["Late", (a) => (a.lateness_ms === undefined ? "" : `${num(a.lateness_ms)} ms`), "fit"],
    ["Took", (a) => (a.ended_ms ? span(a.ended_ms - a.started_ms) : "–"), "fit"],
    ["Answer", (a) => (a.status ? html`<b>${a.status}</b>` : "none")],
    ["Error", (a) => html`<span class="small">${a.error || ""}</span>`],
  ]} />`;
}

function Facts({ t }) {
  const facts = [
    ["Topic", html`<a href=${topicLink(t.topic)}>${t.topic}</a>`], ["State", html`<${State} of=${t.state} />`], ["Due", html`<${When} ms=${t.due_ms} />`],
    t.next_attempt_ms && ["Next attempt", html`<${When} ms=${t.next_attempt_ms} />`], t.waits_for && ["Waits for", `${t.waits_for.replace("_", " ")}${t.waits_on ? `: ${momentsIn(t.waits_on)}` : ""}`],
    ["Attempts", `${num(t.attempts)} of ${num(t.max_attempts)}`], t.fired_ms && ["Last attempt began", html`<${When} ms=${t.fired_ms} />`], t.asked_ms && ["Fired by hand", html`<${When} ms=${t.asked_ms} />`],
    t.lateness_ms !== undefined && ["Late", `${num(t.lateness_ms)} ms`], t.callback && t.callback.url && ["Calls", html`<span class="mono">${t.callback.method || "POST"} ${t.callback.url}</span>`],
    t.key && ["Key", t.key], t.priority ? ["Priority", t.priority] : null, t.expires_after && ["Expires after", t.expires_after],
    t.labels && t.labels.length && ["Labels", t.labels.map((l) => html`<span class="chip">${l}</span>`)], t.repeat && ["Repeats", t.repeat.cron ? `${t.repeat.cron}${t.repeat.zone ? ` (${t.repeat.zone})` : ""}` : `every ${t.repeat.every}`],
    t.successor && ["Successor", "another timer of this id waits until the running attempt has ended"], t.cancel_requested && ["Cancel", "was asked for while a call was running"],
    ["Added", html`<${When} ms=${t.created_ms} />`], t.updated_ms !== t.created_ms && ["Changed", html`<${When} ms=${t.updated_ms} />`], ["Version", t.version],
  ].filter(Boolean);
  return html`<dl class="facts">${facts.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

function Actions({ t, raw, again }) {
  const path = timerPath(t.topic, t.id);
  const pending = t.state === "scheduled";
  return html`<div class="row">
    ${pending && html`<${Action} needs="add" label="Fire now" title=${`Fire ${t.id} now?`} verb="Fire now" run=${async () => { await call("POST", `${path}/fire`, {}); say(`${t.id} is attempted now.`); again(); }}>
      <p>Its next attempt is made at once. Its due time stays, and the times of a series. A pause, a breaker or an order that holds it still holds it.</p><//>
      <${ChangeTimer} t=${t} raw=${raw} done=${again} />`}
    ${(pending || t.state === "leased") && html`<${Action} needs="cancel" label="Cancel the timer" title=${`Cancel ${t.id}?`} verb="Cancel the timer" danger run=${async () => {
      const r = await call("DELETE", path); say(r.outcome === "prevented" ? `${t.id} is cancelled: no call starts any more.` : `A call of ${t.id} is running; no further one starts.`); again(); }}>
      <p>It is not called any more. This cannot be taken back; the timer can be added again.</p><//>`}
    ${t.state === "dead" && html`<${Action} needs="admin" class="main" label="Redrive" title=${`Redrive ${t.id}?`} verb="Redrive" run=${async () => {
      const r = await call("POST", `${topicPath(t.topic)}/dead/redrive`, { uids: [t.uid] }); say(r.changed ? `${t.id} is tried again.` : `It was not redriven: ${(r.skips || [{ detail: "it is no dead letter" }])[0].detail}.`, r.changed ? "ok" : "warn"); again(); }}>
      <p>It is called again now, and its attempts start again.</p><//>`}</div>`;
}

export function Timer({ topic, id }) {
  const path = timerPath(topic, id);
  const { data, error, again } = useLoad(async (signal) => {
    const text = await (await open("GET", path, { signal })).text();
    const t = JSON.parse(text);
    return { t, raw: t.payload === undefined ? "" : rawPayload(text) };
  }, [path], 2000);
  const past = useLoad((s) => get(`${topicPath(topic)}/history`, { id, limit: 100 }, s).catch((e) => { if (e.status === 404) return { entries: [] }; throw e; }), [path, data && data.t.version, data && data.t.state], 0);
  if (!data) {
    return html`<div class="stack"><h1>${id}</h1>${error && error.status === 404 ? html`<${Card}><${Empty}>There is no timer <b>${id}</b> in topic ${topic}, and the topic's history has none.<//><p><a href=${topicLink(topic)}>To the topic</a></p><//>` : html`<${Failed} error=${error} again=${again} />`}</div>`;
  }
  const { t, raw } = data;
  const [kind, head, more] = story(t);
  const entries = (past.data && past.data.entries) || [];
  const attempts = t.attempt_log || (entries.find((e) => e.uid === t.uid) || {}).attempt_log || [];
  const others = entries.filter((e) => e.uid !== t.uid || t.repeat);
  return html`<div class="stack">
    <div class="between"><div><p class="muted small"><a href="#/topics">Topics</a> / <a href=${topicLink(topic)}>${topic}</a></p><h1>${id} <${State} of=${t.state} /></h1></div><${Actions} t=${t} raw=${raw} again=${again} /></div>
    <${Failed} error=${error} again=${again} />
    <section class="card verdict ${kind === "bad" ? "bad" : kind === "warn" ? "warn" : ""}" aria-label="What is the matter"><h2>${head}</h2>${more && html`<p>${more}</p>`}
      ${t.waits_for === "breaker" && html`<p><a href="#/receivers">To the receivers</a></p>`}
      ${t.waits_for === "topic_paused" && html`<p><a href=${topicLink(topic)}>To the topic</a></p>`}</section>
    <${Card} title="Attempts">${attempts.length ? html`<${Attempts} list=${[...attempts].reverse()} />` : html`<${Empty}>${t.attempts ? "The history has none of its attempts." : "No attempt was made yet."}<//>`}<//>
    <div class="cards"><${Card} title="What it is"><${Facts} t=${t} /><//>
      <${Card} title="Payload">${t.payload !== undefined ? html`<pre>${shown(raw)}</pre>` : t.payload_base64 ? html`<p class="muted">Binary, ${t.content_type}:</p><pre>${t.payload_base64}</pre>` : html`<${Empty}>It has none.<//>`}
        ${t.callback && t.callback.headers && html`<h3>Headers</h3><pre>${Object.entries(t.callback.headers).map(([k, v]) => `${k}: ${v}`).join("\n")}</pre>`}<//></div>
    ${others.length > 0 && html`<${Card} title="Timers that had this id before"><${Table} rows=${others} keyOf=${(e) => e.uid + e.ended_ms} caption="Before" columns=${[
      ["Ended", (e) => html`<${When} ms=${e.ended_ms} />`], ["How", (e) => html`<${State} of=${e.state} />`], ["Attempts", (e) => num(e.attempts), "right"], ["Last answer", (e) => e.last_status || ""], ["Error", (e) => e.last_error || ""]]} /><//>`}
  </div>`;
}
