// One timer's life: what it is, what it waits for, what was tried, and what can be done.
import { ago, call, clock, get, html, many, momentsIn, num, read, reasons, span, timerPath, topicLink, topicPath, useLoad } from "./lib.js";
import { Action, Answer, Card, Empty, Failed, Labels, say, State, Table, Url, Waits, When } from "./parts.js";
import { EditTimer, Occurrences } from "./forms.js";
import { redriveBody, RedriveURL } from "./dead.js";

// story says in plain words what is the matter with a timer: kind, headline, and what to do. A
// timer that is not due has no reason to wait yet, also where its topic is paused.
export function story(t, now = Date.now(), topicPaused = false) {
  const last = t.last_status ? `answered ${t.last_status}` : t.last_error ? `failed: ${t.last_error}` : "failed";
  switch (t.state) {
    case "done":
      return ["ok", t.attempts ? `Done: called at ${clock(t.fired_ms)}${t.attempts > 1 ? `, in attempt ${t.attempts}` : ""}${t.last_status ? `, and the receiver answered ${t.last_status}` : ""}.` : "Done.",
        t.lateness_ms === undefined ? "" : `The first attempt started ${span(t.lateness_ms)} late.`];
    case "cancelled": return ["warn", "Cancelled. It will not be called.", ""];
    case "dead":
      return ["bad", `Dead: ${reasons[t.reason] || t.reason}.`, `${t.attempts ? `${t.attempts > 1 ? `The last of ${t.attempts} attempts` : "Its attempt"} ${last}.` : "No attempt was made."} Fix the cause, then redrive it.`];
    case "leased": return ["busy", `Running: attempt ${t.attempts}${t.fired_ms ? `, started ${ago(t.fired_ms, now)}` : ""}.`, t.waits_for === "consumer" ? "A consumer has leased it." : ""];
  }
  const on = t.waits_on ? ` ${momentsIn(t.waits_on)}` : "";
  switch (t.waits_for) {
    case "paused": return ["warn", "Paused. It is not called until it is resumed.", t.next_attempt_ms > now ? `Its time is ${ago(t.next_attempt_ms, now)}.` : "Its time has passed: it is called as soon as it is resumed."];
    case "topic_paused": return ["warn", "Waiting: the topic is paused.", "It runs as soon as you resume the topic."];
    case "breaker": return ["bad", `Waiting: the receiver is unhealthy${on ? `:${on}` : ", and its breaker is open"}.`, "Calls resume by themselves when the receiver answers again."];
    case "backoff": return ["warn", `The last attempt ${last}. Next retry ${ago(t.next_attempt_ms, now)}.`, `Attempt ${t.attempts + 1} of ${t.max_attempts}.`];
    case "key": return ["warn", `Waiting: another timer of its key runs first${on ? `:${on}` : ""}.`, "The topic limits how many timers of one key run at once."];
    case "order": return ["", "Waiting: an earlier timer of its id has not ended.", "Timers that collect are called one after the other."];
    case "key_rate": return ["warn", "Waiting: its key is at its rate limit.", ""];
    case "concurrency": return ["warn", `Waiting: the topic is at its concurrency limit${on ? ` (${t.waits_on})` : ""}.`, ""];
    case "rate": return ["warn", `Waiting: the topic is at its rate limit${on ? ` (${t.waits_on})` : ""}.`, ""];
    case "slots": return ["warn", `Waiting: its receiver is at its concurrency limit${on ? ` (${t.waits_on})` : ""}.`, ""];
    case "spread": return ["", "Due. It starts within the topic's spread.", ""];
    case "zone": return ["bad", `Waiting: its node does not know the time zone${on}.`, "Upgrade the nodes, or edit the timer to use another zone."];
    case "window": return ["warn", "Waiting: the topic's window is closed.", ""];
    case "batch": return ["", "Due. Its call waits for more timers.", "The call starts when it is full or when the topic's wait is over."];
    case "no_callback": return ["bad", "Waiting: neither the timer nor its topic has a URL.", "Edit the timer or the topic, and give it one."];
      case "refused_address": return ["bad", `Waiting: its address is not allowed: ${t.waits_on || t.last_error}`, "Allow the address (--callback-allow), or edit the URL."];
      case "turn": return ["", "Due. Many are due at once, and others start first.", ""];
    case "leader": return ["bad", "Waiting: the leader of its shard cannot start calls yet.", "See the cluster page: a node may be down, or a clock may be wrong."];
    case "consumer": return ["warn", "Waiting: no consumer has pulled it yet.", ""];
  }
  const next = t.next_attempt_ms || t.due_ms;
  if (t.attempts > 0) return ["warn", `The last attempt ${last}. Next retry ${ago(next, now)}.`, `Attempt ${t.attempts + 1} of ${t.max_attempts}.`];
  if (next > now && topicPaused) return ["warn", `Its topic is paused. Its time is ${ago(next, now)}.`, "It runs in time if you resume the topic by then."];
  if (next > now) return ["", `Scheduled: it runs ${ago(next, now)}.`, ""];
  return ["warn", `Due for ${span(now - next)}. It is about to be called.`, ""];
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
    ["Started", (a) => html`<${When} ms=${a.started_ms} />`],
    ["Late", (a) => (a.lateness_ms === undefined ? "" : span(a.lateness_ms)), "fit"],
    ["Took", (a) => (a.ended_ms ? span(a.ended_ms - a.started_ms) : "–"), "fit"],
    ["Answer", (a) => (a.status ? html`<b>${a.status}</b>` : "none")],
    ["Error", (a) => html`<span class="small">${a.error || ""}</span><${Answer} of=${a} />`],
  ]} />`;
}

// outcomeFact is the topic in which the end of a timer makes another timer: its own, or its topic's.
function outcomeFact(name, own, ofTopic) {
  if (own === null) return [name, "none"];
  const at = own || ofTopic;
  return at && [name, html`<a href=${topicLink(at.topic)}>${at.topic}</a>${own ? "" : html` <span class="muted small">(of the topic)</span>`}`];
}

function Facts({ t, policy }) {
  const own = t.callback || {}, called = own.url || policy.delivery === "pull" ? own : { ...policy.callback, ...own };
  const facts = [
    ["Topic", html`<a href=${topicLink(t.topic)}>${t.topic}</a>`], ["State", html`<${State} of=${t.state} />`], ["Due", html`<${When} ms=${t.due_ms} />`],
    t.next_attempt_ms && ["Next attempt", html`<${When} ms=${t.next_attempt_ms} />`], t.waits_for && ["Waits for", html`<${Waits} t=${t} />`],
    ["Attempts", `${num(t.attempts)} of ${num(t.max_attempts)}`], t.fired_ms && ["Last attempt", html`<${When} ms=${t.fired_ms} />`], t.ended_ms && [t.state === "dead" ? "Died" : "Ended", html`<${When} ms=${t.ended_ms} />`], t.asked_ms && ["Fired manually", html`<${When} ms=${t.asked_ms} />`],
    t.lateness_ms !== undefined && ["Late", span(t.lateness_ms)], called.url && ["Calls", html`<span class="mono">${called.method || "POST"}</span> <${Url}>${called.url}<//>${own.url ? "" : html` <span class="muted small">(of the topic)</span>`}`],
    t.key && ["Key", t.key], t.priority ? ["Priority", t.priority] : null, t.weight && ["Weight", t.weight], t.expires_after && ["Expires after", t.expires_after],
    t.labels && t.labels.length && ["Labels", html`<${Labels} of=${t.labels} />`], t.repeat && ["Repeats", t.repeat.cron ? `${t.repeat.cron}${t.repeat.zone ? ` (${t.repeat.zone})` : ""}` : `every ${t.repeat.every}`],
    ...[["on_done", "Outcome if done"], ["on_dead", "Outcome if dead"]].map(([field, name]) => outcomeFact(name, t[field], policy[field])),
    t.collected && ["Collected", many(t.collected, "payload")], t.successor && ["Successor", "another timer with this id runs after this one"], t.cancel_requested && ["Cancel", "requested while a call was running"],
    ["Added", html`<${When} ms=${t.created_ms} />`], t.updated_ms !== t.created_ms && ["Changed", html`<${When} ms=${t.updated_ms} />`], ["Version", t.version],
  ].filter(Boolean);
  return html`<dl class="facts">${facts.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

function Actions({ t, raw, policy, again }) {
  const path = timerPath(t.topic, t.id);
  const pending = t.state === "scheduled";
  return html`<div class="row">
    ${pending && html`<${Action} needs="add" label="Fire now" title=${`Fire ${t.id} now?`} verb="Fire now" run=${async () => { await call("POST", `${path}/fire`, {}); say(`${t.id} fired.`); again(); }}>
      <p>The next attempt starts at once. The due time does not change, nor do the times of a series. A pause, an open breaker or another timer of its key still delays it.</p><//>
      ${t.paused ? html`<${Action} needs="add" label="Resume" title=${`Resume ${t.id}?`} verb="Resume" run=${async () => { await call("POST", `${path}/resume`, {}); say(`${t.id} resumed.`); again(); }}>
        <p>It runs when it is due. If its time has passed, it runs now.</p><//>` : html`<${Action} needs="add" label="Pause" title=${`Pause ${t.id}?`} verb="Pause" run=${async () => { await call("POST", `${path}/pause`, {}); say(`${t.id} paused.`); again(); }}>
        <p>It is not called until somebody resumes it.${t.repeat ? " Runs that come due meanwhile are missed." : ""}${t.expires_after ? " It still expires." : ""}</p><//>`}
      <${EditTimer} t=${t} raw=${raw} pull=${policy.delivery === "pull"} done=${again} />`}
    ${(pending || t.state === "leased") && html`<${Action} needs="cancel" label="Cancel timer" title=${`Cancel ${t.id}?`} verb="Cancel timer" dismiss="Close" danger run=${async () => {
      const r = await call("DELETE", path); say(r.outcome === "prevented" ? `${t.id} cancelled. It will not be called.` : `A call of ${t.id} is running. No other call will start.`); again(); }}>
      <p>It will not be called. This cannot be undone, but the timer can be added again.</p><//>`}
    ${t.state === "dead" && html`<${Action} needs="admin" class="main" label="Redrive" title=${`Redrive ${t.id}?`} verb="Redrive" run=${async (form) => {
      const r = await call("POST", `${topicPath(t.topic)}/dead/redrive`, redriveBody(form, { uids: [t.uid] })); say(r.changed ? `${t.id} redriven.` : `It was not redriven: ${(r.skips || [{ detail: "it is no dead letter" }])[0].detail}.`, r.changed ? "ok" : "warn"); again(); }}>
      <p>It is called again now, and its attempts start from 1.</p><${RedriveURL} /><//>`}</div>`;
}

export function Timer({ topic, id }) {
  const path = timerPath(topic, id);
  const { data, error, again } = useLoad(async (signal) => {
    const text = await read(`${path}?next=5`, signal);
    const t = JSON.parse(text);
    return { t, raw: t.payload === undefined ? "" : rawPayload(text) };
  }, [path], 2000);
  const of = useLoad((s) => get(topicPath(topic), {}, s), [topic]);
  const past = useLoad((s) => get(`${topicPath(topic)}/history`, { id, limit: 100 }, s).catch((e) => { if (e.status === 404) return { entries: [] }; throw e; }), [path, data && data.t.version, data && data.t.state], 0);
  if (!data) {
    return html`<div class="stack"><h1>${id}</h1>${error && error.status === 404 ? html`<${Card}><${Empty}>There is no timer <b>${id}</b> in topic ${topic} or in its history.<//><p><a href=${topicLink(topic)}>To the topic</a></p><//>` : html`<${Failed} error=${error} again=${again} />`}</div>`;
  }
  const { t, raw } = data, policy = (of.data && of.data.policy) || {};
  const [kind, head, more] = story(t, Date.now(), of.data && of.data.paused);
  const entries = (past.data && past.data.entries) || [];
  const attempts = t.attempt_log || (entries.find((e) => e.uid === t.uid) || {}).attempt_log || [];
  const others = entries.filter((e) => e.uid !== t.uid || t.repeat);
  return html`<div class="stack">
    <div class="between"><div><p class="muted small"><a href="#/topics">Topics</a> / <a href=${topicLink(topic)}>${topic}</a></p><h1>${id} <${State} of=${t.state} /></h1></div><${Actions} t=${t} raw=${raw} policy=${policy} again=${again} /></div>
    <${Failed} error=${error} again=${again} />
    <section class="card verdict ${kind === "bad" ? "bad" : kind === "warn" ? "warn" : ""}" aria-label="Status"><h2>${head}</h2>${more && html`<p>${more}</p>`}
      ${t.waits_for === "breaker" && html`<p><a href="#/receivers">Open receivers</a></p>`}
      ${t.waits_for === "topic_paused" && html`<p><a href=${topicLink(topic)}>Open topic</a></p>`}</section>
    <${Card} title="Attempts">${attempts.length ? html`<${Attempts} list=${[...attempts].reverse()} />` : html`<${Empty}>${t.attempts ? "The history has no attempts of this timer." : "No attempts yet."}<//>`}<//>
    <div class="cards"><${Card} title="Details"><${Facts} t=${t} policy=${policy} />${t.next_ms && html`<h3>Next runs</h3><${Occurrences} list=${t.next_ms} />`}<//>
      <${Card} title="Payload">${t.payload !== undefined ? html`<pre>${shown(raw)}</pre>` : t.payload_base64 ? html`<p class="muted">Binary, ${t.content_type}:</p><pre>${t.payload_base64}</pre>` : html`<${Empty}>No payload.<//>`}
        ${t.callback && t.callback.headers && html`<h3>Headers</h3><pre>${Object.entries(t.callback.headers).map(([k, v]) => `${k}: ${v}`).join("\n")}</pre>`}<//></div>
    ${others.length > 0 && html`<${Card} title="Earlier timers with this id"><${Table} rows=${others} keyOf=${(e) => e.uid + e.ended_ms} caption="Before" columns=${[
      ["Ended", (e) => html`<${When} ms=${e.ended_ms} />`], ["Result", (e) => html`<${State} of=${e.state} />`], ["Attempts", (e) => num(e.attempts), "right"], ["Last answer", (e) => e.last_status || ""], ["Error", (e) => e.last_error || ""]]} /><//>`}
  </div>`;
}
