// What happens to timers, as it happens.
import { clock, get, heard, html, num, open, query, span, timerLink, useEffect, useLoad, useRef, useState } from "./lib.js";
import { Badge, Card, Empty, Failed } from "./parts.js";

const most = 200;
const everything = "fired,dead,added,changed,cancelled,breaker,node,shards";
const kinds = { fired: ["ok", "called"], failed: ["bad", "failed"], dead: ["bad", "dead"], added: ["", "added"], changed: ["", "changed"], cancelled: ["warn", "cancelled"], breaker: ["warn", "breaker"], node: ["warn", "node"], shards: ["", "shards"] };

// A stream without events has a comment every 15 s.
const silentFor = 20000;

// listen reads a stream of server-sent events; fetch carries the token in a header, which
// EventSource cannot.
const listen = (params, signal, take, began) => heard(silentFor, signal, async (s, alive) => {
  const response = await open("GET", "/v1/events" + query(params), { signal: s });
  began();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    const events = [];
    for (const block of blocks) {
      const kind = /^event: (.*)$/m.exec(block), data = /^data: (.*)$/m.exec(block);
      if (kind && data) events.push({ kind: kind[1], ...JSON.parse(data[1]) });
    }
    if (events.length) take(events);
  }
});

const kindOf = (e) => kinds[e.kind === "fired" && e.result !== "success" ? "failed" : e.kind] || ["", e.kind];

function words(e) {
  switch (e.kind) {
    case "fired": return html`attempt ${e.attempt}: ${e.result}${e.status ? `, answered ${e.status}` : ""}${e.attempt === 1 ? `, ${span(e.late_ms)} late` : ""}${e.error ? html` <span class="muted">${e.error}</span>` : ""}`;
    case "dead": return `${e.reason}${e.status ? `, answered ${e.status}` : ""}`;
    case "breaker": return `${e.destination} is ${e.state}`;
    case "node": return `${e.node} is ${e.state}`;
    case "shards": return e.state === "divided" ? `shard ${e.shard} is ready: ${e.done} of ${e.to - e.from} new shards` : `${e.from} to ${e.to} shards: ${e.state}`;
    case "added": case "changed": return `due ${clock(e.due_ms)}`;
  }
  return "";
}

export function Events({ params, title }) {
  const [rows, setRows] = useState([]);
  const [missed, setMissed] = useState(0);
  const [state, setState] = useState("connecting");
  const [error, setError] = useState(null);
  const [held, setHeld] = useState(false);
  const pause = useRef(false);
  pause.current = held;
  const number = useRef(0);
  const key = JSON.stringify(params);
  useEffect(() => {
    const abort = new AbortController();
    let timer;
    let waiting = [];
    const flush = setInterval(() => {
      if (!waiting.length || pause.current) { waiting = waiting.slice(-most); return; }
      const next = waiting;
      waiting = [];
      setRows((old) => [...next.reverse(), ...old].slice(0, most));
    }, 250);
    const run = async () => {
      clearTimeout(timer);
      try {
        await listen(params, abort.signal, (events) => {
          for (const e of events) {
            if (e.kind === "missed" && e.missed) setMissed((n) => n + e.missed);
            else waiting.push({ ...e, number: ++number.current });
          }
        }, () => { setState("listening"); setError(null); });
        setState("connecting");
      } catch (e) {
        if (abort.signal.aborted) return;
        setState("connecting");
        setError(e);
        if (e.status === 401) window.addEventListener("carillon-signedin", run, { once: true });
        if (e.status >= 400 && e.status < 500) return;
      }
      if (!abort.signal.aborted) timer = setTimeout(run, 2000);
    };
    setRows([]);
    setMissed(0);
    run();
    return () => { window.removeEventListener("carillon-signedin", run); abort.abort(); clearTimeout(timer); clearInterval(flush); };
  }, [key]);
  return html`<${Card} title=${title} side=${html`<span class="row"><${Badge} kind=${state === "listening" ? "ok" : "warn"}>${state}<//><button aria-pressed=${held} onClick=${() => setHeld(!held)}>${held ? "Continue" : "Pause"}</button></span>`}>
    <${Failed} error=${error} />
    ${missed > 0 && html`<p class="notice warn">${num(missed)} events are not shown: they came too fast for this page.</p>`}
    ${rows.length ? html`<div class="scroll"><table class="fold"><caption class="hidden">Events, the newest first</caption><thead><tr><th>Time</th><th>Event</th><th>Timer</th><th></th><th>Node</th></tr></thead><tbody>
      ${rows.map((e) => html`<tr key=${e.number}><td class="fit mono">${clock(e.at_ms)}</td><td><${Badge} kind=${kindOf(e)[0]}>${kindOf(e)[1]}<//></td>
        <td>${e.topic ? html`<a href=${timerLink(e.topic, e.id)}>${e.id}</a> <span class="muted small">${e.topic}</span>` : ""}</td><td class="small">${e.kind === "missed" ? e.error : words(e)}</td><td class="small muted">${e.node}</td></tr>`)}</tbody></table></div>`
    : html`<${Empty}>No events since this page was opened. To see one: <code>carillon ctl add try --delay 2s --callback http://127.0.0.1:7780/</code><//>`}<//>`;
}

export function Live({ params }) {
  const [topic, setTopic] = useState(params.topic || "");
  const [label, setLabel] = useState(params.label || "");
  const [kind, setKind] = useState(params.kind || "");
  const topics = useLoad((s) => get("/v1/topics", { limit: 1000 }, s), []);
  return html`<div class="stack"><h1>Live</h1>
    <div class="filters">
      <label class="field">Topic <select value=${topic} onChange=${(e) => setTopic(e.target.value)}><option value="">all topics</option>${((topics.data && topics.data.topics) || []).map((t) => html`<option key=${t.topic} value=${t.topic}>${t.topic}</option>`)}</select></label>
      <label class="field">Label <input value=${label} spellcheck="false" onChange=${(e) => setLabel(e.target.value.trim())} /></label>
      <label class="field">Events <select value=${kind} onChange=${(e) => setKind(e.target.value)}><option value="">all events</option><option value="breaker,node">breakers and nodes</option><option value="fired">calls</option><option value="dead">dead letters</option><option value="added,changed,cancelled">adds, changes, cancels</option></select></label>
    </div>
    <${Events} params=${{ topic, label, kind: kind || (topic || label ? "" : everything) }} title="Events of all nodes" /></div>`;
}
