// The pieces that pages are made of.
import { ago, clock, html, may, momentsIn, num, pad, Problem, span, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";

export const Badge = ({ kind, children }) => html`<span class="badge ${kind || ""}">${children}</span>`;

// Icons are drawn with one line, in a square of 16.
const icons = {
  "": "M2 8.5 8 3l6 5.5M4 7v6.5h8V7M7 13.5V10h2v3.5",
  topics: "M8 2 2 5l6 3 6-3zM2 8l6 3 6-3M2 11l6 3 6-3",
  dead: "M2 3.5h12v9H2zM2 4l6 5 6-5",
  due: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 5v3.2l2.2 1.6",
  receivers: "M1.5 8H9M6 5l3 3-3 3M8.5 2.5h6v11h-6",
  cluster: "M6 2h4v3H6zM1.5 11h4v3h-4zM10.5 11h4v3h-4zM8 5v3M3.5 11V8h9v3",
  live: "M1 8h3l2-5 4 10 2-5h3",
};
export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${icons[name]} /></svg>`;

// Spark is a line of the last values, the newest at the right; none where all are 0.
export function Spark({ values, label }) {
  const list = (values || []).slice(-60), top = Math.max(...list);
  if (list.length < 2 || !top) return "";
  const points = list.map((v, i) => `${((i * 60) / (list.length - 1)).toFixed(1)},${(15 - (14 * (v || 0)) / top).toFixed(1)}`).join(" ");
  return html` <svg class="spark" viewBox="0 0 60 16" role="img" aria-label=${label}><title>${label}</title><polyline points=${points} /></svg>`;
}

const states = { scheduled: ["", "scheduled"], leased: ["busy", "running"], done: ["ok", "done"], dead: ["bad", "dead"], cancelled: ["warn", "cancelled"] };
export function State({ of }) {
  const [kind, text] = states[of] || ["", of];
  return html`<${Badge} kind=${kind}>${text}<//>`;
}

// When shows a moment in both ways: on the clock, and from now.
export const When = ({ ms }) => (ms ? html`<span class="nowrap" title=${new Date(ms).toISOString()}>${clock(ms)}</span> <span class="muted small nowrap">${ago(ms)}</span>` : "–");

// Url breaks between its parts if it must break, and a long part anywhere: it would be as wide as that.
export const Url = ({ children }) => html`<span class="mono url">${String(children || "").split(/(?<=[/?&=])(?!\/)/).flatMap((part) => part.match(/.{1,40}/gsu) || []).map((part) => html`${part}<wbr />`)}</span>`;

// waits are the causes of waits_for: "waits for …".
export const waits = { paused: "somebody to resume it", topic_paused: "the topic to be resumed", breaker: "an unhealthy receiver", backoff: "the next retry", key: "another timer of its key", concurrency: "the topic's concurrency limit", rate: "the topic's rate limit", slots: "a free call to its receiver", spread: "its place in the spread", consumer: "a consumer", zone: "a known time zone", window: "its window to open", no_callback: "a callback URL", refused_address: "an address that may be called", leader: "its shard's leader", key_rate: "its key's rate limit", batch: "more timers in its call", order: "an earlier timer of its id", turn: "others that start first" };
export const Waits = ({ t }) => (t.waits_for ? html`${waits[t.waits_for] || t.waits_for}${t.waits_on ? html` <span class="muted small">${momentsIn(t.waits_on)}</span>` : ""}` : "");

// Answer is what the receiver answered to an attempt that failed, as it is.
export function Answer({ of: a }) {
  if (!a.answer && !a.answer_base64 && !a.location) return null;
  return html`<details class="small"><summary>Answer${a.answer_type ? ` (${a.answer_type})` : ""}</summary>
    ${a.location && html`<p>Location: <span class="mono">${a.location}</span></p>`}<pre>${a.answer || a.answer_base64 || ""}</pre></details>`;
}

// Pages are the buttons under a list. usePages keeps the cursors; reset is for another filter.
export function usePages() {
  const [cursors, set] = useState([""]);
  return { cursor: cursors[cursors.length - 1], number: cursors.length, reset: () => set([""]), back: () => set(cursors.slice(0, -1)), next: (c) => set([...cursors, c]) };
}
export const Pages = ({ pages, next }) => (next || pages.number > 1) && html`<div class="row"><button disabled=${pages.number < 2} onClick=${pages.back}>Back</button>
  <button disabled=${!next} onClick=${() => pages.next(next)}>Next</button><span class="muted small">page ${pages.number}</span></div>`;

// Input is a labelled field of a form. kind: none for a line of text, "area", or the options.
export function Input({ name, label, value, kind, hint, full, ...more }) {
  return html`<label class="field ${full ? "full" : ""}"><span>${label}${hint && html` <span class="small">(${hint})</span>`}</span>
    ${kind === "area" ? html`<textarea name=${name} spellcheck="false" defaultValue=${value} ...${more}></textarea>`
    : Array.isArray(kind) ? html`<select name=${name} ...${more}>${(kind.includes(value) ? kind : ["", ...kind]).map((o) => html`<option key=${o} value=${o} selected=${o === value}>${o}</option>`)}</select>`
    : html`<input name=${name} spellcheck="false" autocomplete="off" defaultValue=${value} ...${more} />`}</label>`;
}

export function Failed({ error, again }) {
  if (!error) return null;
  return html`<p class="notice bad" role="alert">${error.message}${error.code ? html` <span class="mono">(${error.code})</span>` : ""}
    ${again && html` <button onClick=${again}>Try again</button>`}</p>`;
}

// Labels leads from each label to the timers of all topics that have it.
export const Labels = ({ of }) => (of || []).map((l) => html`<a class="chip" key=${l} href=${`#/search?q=${encodeURIComponent(l)}`} title=${`Find timers labelled ${l}`}>${l}</a>`);
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;
export const Card = ({ title, side, children, class: more }) => html`<section class="card ${more || ""}">
  ${(title || side) && html`<div class="between"><h2>${title}</h2>${side}</div>`}${children}</section>`;
export const Figure = ({ value, name, href }) => html`<div class="figure"><b>${typeof value === "number" ? num(value) : value}</b><span>${href ? html`<a href=${href}>${name}</a>` : name}</span></div>`;

// Table folds into one line for each cell on a phone. columns: [title, cell(row), class].
export function Table({ rows, columns, keyOf, caption }) {
  return html`<div class="scroll"><table class="fold">
    <caption class="hidden">${caption}</caption>
    <thead><tr>${columns.map(([title, , kind]) => html`<th scope="col" class=${kind || ""}>${title}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${keyOf(row)}>${columns.map(([title, cell, kind]) => html`<td class=${kind || ""} data-label=${typeof title === "string" && title ? title : undefined}>${cell(row)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

// Toasts say what an action did. A phone has room for two, which are a part of the page's head: they
// move what is below and cover nothing.
const phone = matchMedia("(max-width: 640px)");
let push = () => {};
export const say = (text, kind = "ok") => push({ text, kind, key: Math.random() });
export function Toasts() {
  const [list, set] = useState([]);
  push = (toast) => {
    set((old) => [...old.slice(phone.matches ? -1 : -3), toast]);
    setTimeout(() => close(toast.key), 9000);
  };
  const close = (key) => set((old) => old.filter((o) => o.key !== key));
  return html`<div class="toasts" role="status" aria-live="polite">${list.map((t) => html`<div key=${t.key} class="notice ${t.kind}"><span>${t.text}</span><button class="close" aria-label="Close" onClick=${() => close(t.key)}>×</button></div>`)}</div>`;
}

// advice is what to do about a refusal, in a form.
const advice = { version_mismatch: "Somebody else has changed it. Close this form and open it again to see the new values." };

const contentOf = (form) => JSON.stringify([...form.entries()]);

// Dialog is a form over the page: Escape and Cancel close it. It keeps what it was opened with:
// the page beneath loads again, which must change neither what is typed nor what it acts on.
// preview(form) returns what the change would do; with dryRun it must be seen before the change.
// force has a text for each code of a refusal that ?force=true overrides.
export function Dialog(props) {
  const [{ title, verb, danger, dismiss, wide, preview, dryRun, force = {}, onClose, onSubmit, children }] = useState(props);
  const ref = useRef();
  const [seen, setSeen] = useState({});
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    if (!ref.current.open) ref.current.showModal();
    // A dialog that is removed does not give the focus back, as one that is closed does.
    return () => setTimeout(() => { if (document.activeElement === document.body && before.isConnected) before.focus(); });
  }, []);
  const run = async (work) => {
    setBusy(true);
    setError(null);
    try { await work(); } catch (failure) {
      // After the first clause is advice to a caller of the API: here a checkbox does it.
      const text = force[failure.code] ? `${failure.message.split("; ")[0]}. Nothing was changed.` : failure.message;
      setError(new Problem(failure.status || 0, failure.code || "", text));
    }
    setBusy(false);
  };
  const look = (form) => run(async () => setSeen({ of: contentOf(form), shown: await preview(form) }));
  const submit = (e) => {
    e.preventDefault();
    const form = new FormData(e.target);
    return dryRun && seen.of !== contentOf(form) ? look(form) : run(async () => { await onSubmit(form); onClose(); });
  };
  // Another input makes what was seen untrue.
  const edited = () => { if (seen.of) setSeen({}); };
  return html`<dialog ref=${ref} class=${wide ? "wide" : ""} onClose=${onClose} aria-labelledby="dialog-title">
    <form onSubmit=${submit} onInput=${edited}>
      <h2 id="dialog-title">${title}</h2>
      ${children}
      ${seen.shown && html`<div class="notice" role="status">${seen.shown}</div>`}
      <${Failed} error=${error} />
      ${error && advice[error.code] && html`<p class="small">${advice[error.code]}</p>`}
      ${error && force[error.code] && html`<label class="row"><input type="checkbox" name="force" /> ${force[error.code]}</label>`}
      <div class="row"><span class="grow"></span>
        <button type="button" onClick=${onClose}>${dismiss || "Cancel"}</button>
        ${preview && !dryRun && html`<button type="button" disabled=${busy} onClick=${(e) => look(new FormData(e.target.form))}>Preview</button>`}
        <button type="submit" class=${danger && !(dryRun && !seen.of) ? "danger" : "main"} disabled=${busy}>${busy ? "Working …" : dryRun && !seen.of ? "Preview" : verb}</button>
      </div>
    </form></dialog>`;
}

// Action is a button that asks before it does something, unless nothing can be lost by it. It is
// not there for a token without the scope that it needs.
export function Action({ label, verb, run, ask, needs, children, class: kind, ...form }) {
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState(false);
  const now = async () => {
    setBusy(true);
    try { await run(); } catch (e) { say(e.message, "bad"); }
    setBusy(false);
  };
  if (needs && !open && !may(needs)) return null;
  return html`<button class=${kind || ""} disabled=${busy} onClick=${() => (ask === false ? now() : setOpen(true))}>${label}</button>
    ${open && html`<${Dialog} ...${form} verb=${verb || label} onClose=${() => setOpen(false)} onSubmit=${run}>${children}<//>`}`;
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// foot writes a moment at the foot of a chart: the hour; where a day begins, the day; if all of them
// begin a month, the month.
function foot(list) {
  const days = list.map((s) => new Date(s * 1000)), months = days.length > 1 && days.every((d) => d.getDate() === 1);
  return days.map((d) => {
    if (d.getHours() + d.getMinutes() + d.getSeconds() > 0) return `${pad(d.getHours())}:${pad(d.getMinutes())}${d.getSeconds() ? `:${pad(d.getSeconds())}` : ""}`;
    return months ? `${d.getFullYear()}-${pad(d.getMonth() + 1)}` : `${pad(d.getMonth() + 1)}-${pad(d.getDate())}`;
  });
}

// Chart draws lines, or bars, over time. data: [seconds, values, …];
// series: [{label, color, value}].
// Its legend has the newest values, or those under the pointer.
export function Chart({ data, series, bars, tall, label }) {
  const box = useRef();
  const plot = useRef();
  const [theme, setTheme] = useState(0);
  useEffect(() => {
    const turn = () => setTheme((n) => n + 1);
    const media = matchMedia("(prefers-color-scheme: dark)");
    window.addEventListener("carillon-theme", turn);
    media.addEventListener("change", turn);
    return () => { window.removeEventListener("carillon-theme", turn); media.removeEventListener("change", turn); };
  }, []);
  useEffect(() => {
    const size = () => ({ width: Math.max(200, box.current.clientWidth), height: box.current.clientHeight - (bars ? 0 : 34) });
    const axis = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 }, font: "12px system-ui, sans-serif" };
    const write = (v) => (v === null || v === undefined ? "–" : (series[0].value || num)(v));
    const widest = (u, list) => 16 + Math.max(24, ...(list || []).map((text) => 7 * text.length));
    const draw = series.map((s) => ({
      label: s.label, value: (u, v, i, at) => write(at === null ? u.data[i].findLast((n) => n !== null) : v), width: bars ? 0 : 2, stroke: css(s.color || "--accent"), spanGaps: true,
      fill: bars ? css(s.color || "--accent") : undefined, points: { size: 5, show: (u, i) => !bars && u.data[i].filter((n) => n !== null).length === 1 }, paths: bars ? window.uPlot.paths.bars({ size: [0.85, 60], align: 1 }) : undefined,
    }));
    plot.current = new window.uPlot({
      ...size(), legend: { show: !bars }, cursor: { y: false }, scales: { x: { range: (_, low, high) => (low === null || high - low < 10 ? [(high ?? Date.now() / 1000) - 60, high ?? Date.now() / 1000] : [low, high]) }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
      axes: [{ ...axis, space: 70, values: (_, list) => foot(list) }, { ...axis, size: widest, values: (_, list) => list.map((v) => (Number.isInteger(v) ? write(v) : "")) }],
      series: [{ label: "time", value: (_, v) => (v ? clock(v * 1000).slice(0, -4) : "now") }, ...draw],
    }, data, box.current);
    const watch = new ResizeObserver(() => plot.current && plot.current.setSize(size()));
    watch.observe(box.current);
    return () => { watch.disconnect(); plot.current.destroy(); plot.current = null; };
  }, [theme, bars, series.length]);
  useEffect(() => { if (plot.current) plot.current.setData(data); }, [data]);
  return html`<div class="chart ${tall ? "tall" : ""}" ref=${box} role="img" aria-label=${label}></div>`;
}
