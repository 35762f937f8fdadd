// The pieces that pages are made of.
import { clock, html, ago, may, num, Problem, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";

export const Badge = ({ kind, children }) => html`<span class="badge ${kind || ""}">${children}</span>`;

const states = { scheduled: ["", "scheduled"], leased: ["busy", "being called"], done: ["ok", "done"], dead: ["bad", "dead"], cancelled: ["warn", "cancelled"] };
export function State({ of }) {
  const [kind, text] = states[of] || ["", of];
  return html`<${Badge} kind=${kind}>${text}<//>`;
}

// When shows a moment in both ways: on the clock, and from now.
export const When = ({ ms }) => (ms ? html`<span class="nowrap" title=${new Date(ms).toISOString()}>${clock(ms)}</span> <span class="muted small nowrap">${ago(ms)}</span>` : "–");

export function Failed({ error, again }) {
  if (!error) return null;
  return html`<p class="notice bad" role="alert">${error.message}${error.code ? html` <span class="mono">(${error.code})</span>` : ""}
    ${again && html` <button onClick=${again}>Try again</button>`}</p>`;
}

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

// Toasts say what an action did.
let push = () => {};
export const say = (text, kind = "ok") => push({ text, kind, key: Math.random() });
export function Toasts() {
  const [list, set] = useState([]);
  push = (toast) => {
    set((old) => [...old.slice(-3), toast]);
    setTimeout(() => set((old) => old.filter((o) => o.key !== toast.key)), 9000);
  };
  return html`<div class="toasts" role="status" aria-live="polite">${list.map((t) => html`<div key=${t.key} class="notice ${t.kind}">${t.text}</div>`)}</div>`;
}

// Dialog is a form over the page: Escape and Leave it close it. It keeps what it was opened with:
// the page beneath loads again, which must change neither what is typed nor what it acts on.
export function Dialog(props) {
  const [{ title, verb, danger, onClose, onSubmit, children }] = useState(props);
  const ref = useRef();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  useLayoutEffect(() => { if (!ref.current.open) ref.current.showModal(); }, []);
  const submit = async (e) => {
    e.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await onSubmit(new FormData(e.target));
      onClose();
    } catch (failure) {
      setError(failure instanceof Problem ? failure : new Problem(0, "", failure.message));
      setBusy(false);
    }
  };
  return html`<dialog ref=${ref} onClose=${onClose} aria-labelledby="dialog-title">
    <form onSubmit=${submit}>
      <h2 id="dialog-title">${title}</h2>
      ${children}
      <${Failed} error=${error} />
      <div class="row"><span class="grow"></span>
        <button type="button" onClick=${onClose}>Leave it</button>
        <button type="submit" class=${danger ? "danger" : "main"} disabled=${busy}>${busy ? "Working …" : verb}</button>
      </div>
    </form></dialog>`;
}

// Action is a button that asks before it does something, unless nothing can be lost by it. It is not
// there for a token without the scope that it needs.
export function Action({ label, title, verb, danger, run, ask, needs, children, class: kind }) {
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState(false);
  const now = async () => {
    setBusy(true);
    try { await run(); } catch (e) { say(e.message, "bad"); }
    setBusy(false);
  };
  if (needs && !may(needs)) return null;
  return html`<button class=${kind || ""} disabled=${busy} onClick=${() => (ask === false ? now() : setOpen(true))}>${label}</button>
    ${open && html`<${Dialog} title=${title} verb=${verb || label} danger=${danger} onClose=${() => setOpen(false)} onSubmit=${run}>${children}<//>`}`;
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// hours writes a moment at the foot of a chart; where a day begins, the day.
function hours(seconds) {
  const d = new Date(seconds * 1000), two = (n) => String(n).padStart(2, "0");
  if (d.getHours() + d.getMinutes() + d.getSeconds() === 0) return `${two(d.getMonth() + 1)}-${two(d.getDate())}`;
  return `${two(d.getHours())}:${two(d.getMinutes())}${d.getSeconds() ? `:${two(d.getSeconds())}` : ""}`;
}

// Chart draws lines, or bars, over time. data: [seconds, values, …]; series: [{label, color, value}].
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
    const draw = series.map((s) => ({
      label: s.label, value: (_, v) => (v === null || v === undefined ? "–" : s.value ? s.value(v) : num(v)), width: bars ? 0 : 2, stroke: css(s.color || "--accent"),
      fill: bars ? css(s.color || "--accent") : undefined, points: { show: false }, paths: bars ? window.uPlot.paths.bars({ size: [0.85, 60], align: 1 }) : undefined,
    }));
    plot.current = new window.uPlot({
      ...size(), legend: { show: !bars }, cursor: { y: false }, scales: { x: { range: (_, low, high) => (low === null || high - low < 10 ? [(high ?? Date.now() / 1000) - 60, high ?? Date.now() / 1000] : [low, high]) }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
      axes: [{ ...axis, space: 70, values: (_, list) => list.map(hours) }, { ...axis, size: 52, values: (_, list) => list.map((v) => (Number.isInteger(v) ? num(v) : "")) }],
      series: [{ label: "time", value: (_, v) => (v ? new Date(v * 1000).toLocaleTimeString("en-GB") : "–") }, ...draw],
    }, data, box.current);
    const watch = new ResizeObserver(() => plot.current && plot.current.setSize(size()));
    watch.observe(box.current);
    return () => { watch.disconnect(); plot.current.destroy(); plot.current = null; };
  }, [theme, bars, series.length]);
  useEffect(() => { if (plot.current) plot.current.setData(data); }, [data]);
  return html`<div class="chart ${tall ? "tall" : ""}" ref=${box} role="img" aria-label=${label}></div>`;
}
