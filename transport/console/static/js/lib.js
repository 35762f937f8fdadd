// What every page uses: the libraries, the calls to the API, and how things are written.
export * from "/console/vendor/htm-preact-standalone.js";
import { useCallback, useEffect, useRef, useState } from "/console/vendor/htm-preact-standalone.js";

const tokenKey = "carillon-token";

// The token lives in this tab alone, and travels in one header.
export function token() {
  try { return sessionStorage.getItem(tokenKey) || ""; } catch { return ""; }
}

export function setToken(text) {
  try { text ? sessionStorage.setItem(tokenKey, text) : sessionStorage.removeItem(tokenKey); } catch { /* storage is off */ }
  window.dispatchEvent(new Event("carillon-token"));
}

// The token's scopes; undefined: it has all, or they are not known.
let scopes;
export const may = (scope) => !scopes || scopes.includes(scope);
// The node runs by a test clock.
let testClock = false;
export const byTestClock = () => testClock;
// loadScopes returns whether the node knows the token, as far as it can be told.
export async function loadScopes() {
  scopes = undefined;
  try {
    ({ scopes, test_clock: testClock } = await get("/v1/cluster"));
  } catch (e) { // the pages say what is wrong
    if (e.status === 403) scopes = [];
    return e.status !== 401;
  }
  return true;
}

// Problem is an answer that says no, or none at all (status 0).
export class Problem extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

const silent = () => new Problem(0, "", "This node does not answer. Is it running?");

async function problemOf(response) {
  let body = {};
  try { body = await response.json(); } catch { /* not JSON: the status says all */ }
  return new Problem(response.status, body.code || "", body.detail || body.title || `the node answered ${response.status}`);
}

export function query(params) {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(params || {})) {
    for (const v of Array.isArray(value) ? value : [value]) if (v !== undefined && v !== null && v !== "") q.append(name, v);
  }
  const text = q.toString();
  return text ? "?" + text : "";
}

export async function open(method, path, { body, headers, signal } = {}) {
  const all = { ...headers };
  if (token()) all.Authorization = "Bearer " + token();
  if (body !== undefined) all["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers: all, body, signal, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw silent();
  }
  if (response.status === 401) window.dispatchEvent(new Event("carillon-signin"));
  if (!response.ok) throw await problemOf(response);
  return response;
}

export async function call(method, path, body, options) {
  const text = body === undefined ? undefined : typeof body === "string" ? body : JSON.stringify(body);
  const response = await open(method, path, { ...options, body: text });
  return response.json();
}

// readWithin is when a node counts as hung: it takes connections, and answers nothing.
const readWithin = 15000;

// heard ends work(signal, alive) when alive was not called for so many ms: the node hangs.
export async function heard(within, signal, work) {
  const limit = new AbortController(), end = () => limit.abort();
  signal?.addEventListener("abort", end);
  if (signal?.aborted) end();
  let timer;
  const alive = () => { clearTimeout(timer); timer = setTimeout(end, within); };
  alive();
  try {
    return await work(limit.signal, alive);
  } catch (e) {
    throw e instanceof Problem || signal?.aborted ? e : silent();
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", end);
  }
}

// read gets an answer as text.
export const read = (path, signal) => heard(readWithin, signal, async (s) => (await open("GET", path, { signal: s })).text());

export const get = async (path, params, signal) => JSON.parse(await read(path + query(params), signal));

const enc = encodeURIComponent;
export const topicPath = (topic) => `/v1/topics/${enc(topic)}`;
export const timerPath = (topic, id) => `/v1/topics/${enc(topic)}/timers/${enc(id)}`;
export const topicLink = (topic, more) => `#/topics/${enc(topic)}${query(more)}`;
export const timerLink = (topic, id) => `#/topics/${enc(topic)}/timers/${enc(id)}`;
// addCommand is the command that adds a timer to a topic with this policy. A topic that is pulled
// refuses a callback, and one with a URL needs none.
export const addCommand = (topic, { delivery, callback } = {}, more = "") => `carillon ctl add ${topic} --delay 5m${more}${delivery === "pull" || (callback && callback.url) ? "" : " --callback http://127.0.0.1:7780/"}`;

// useLoad asks for something, again whenever deps change, after signing in, and every so many ms while
// the page is looked at. An older answer never replaces a newer one.
export function useLoad(load, deps, every) {
  const [state, set] = useState({ loading: true });
  const round = useRef(0);
  const again = useRef(() => {});
  useEffect(() => {
    const abort = new AbortController();
    let timer;
    const run = async () => {
      clearTimeout(timer);
      const mine = ++round.current;
      try {
        const data = await load(abort.signal);
        if (mine === round.current && !abort.signal.aborted) set({ data, loading: false });
      } catch (error) {
        if (mine === round.current && !abort.signal.aborted) set((old) => ({ data: old.data, error, loading: false }));
      }
      if (every && !abort.signal.aborted) timer = setTimeout(() => (document.hidden ? (timer = setTimeout(run, every)) : run()), every);
    };
    again.current = run;
    set((old) => ({ ...old, loading: true }));
    run();
    window.addEventListener("carillon-signedin", run);
    return () => { window.removeEventListener("carillon-signedin", run); abort.abort(); round.current++; clearTimeout(timer); };
  }, deps);
  return { ...state, again: useCallback(() => again.current(), []) };
}

// How things are written.
const numbers = new Intl.NumberFormat("en-US");
export const num = (n) => (n === undefined || n === null ? "–" : numbers.format(n));

// many is a number with its noun.
export const many = (n, one, more = one + "s") => `${num(n)} ${n === 1 ? one : more}`;

export function rate(n) {
  if (n === undefined || n === null) return "–";
  return n === 0 ? "0" : n < 10 ? n.toFixed(1) : num(Math.round(n));
}

export function span(ms) {
  if (ms === undefined || ms === null) return "–";
  const exact = Math.abs(ms);
  if (exact < 1000) return `${Math.round(exact)} ms`;
  if (exact < 10000) return `${(exact / 1000).toFixed(1)} s`;
  const s = Math.round(exact / 1000), two = (n, unit, rest, small) => `${n} ${unit}${rest ? ` ${rest} ${small}` : ""}`;
  if (s < 60) return `${s} s`;
  if (s < 3600) return two(Math.floor(s / 60), "min", s % 60, "s");
  const min = Math.round(s / 60), h = Math.round(s / 3600);
  if (min < 1440) return two(Math.floor(min / 60), "h", min % 60, "min");
  return h < 1440 ? two(Math.floor(h / 24), "d", h % 24, "h") : `${num(Math.round(h / 24))} d`;
}

export function ago(ms, now = Date.now()) {
  if (!ms) return "–";
  return ms > now ? `in ${span(ms - now)}` : `${span(now - ms)} ago`;
}

export const pad = (n, width = 2) => String(n).padStart(width, "0");
const dayOf = (d) => `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`;
const secondOf = (d) => `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;

// local is a moment as forms take it: by the browser's clock, 24 hours, to the second.
export const local = (ms) => `${dayOf(new Date(ms))} ${secondOf(new Date(ms))}`;
export function clock(ms) {
  if (!ms) return "–";
  const d = new Date(ms);
  const day = new Date().toDateString() === d.toDateString() ? "" : dayOf(d) + " ";
  return `${day}${secondOf(d)}.${pad(d.getMilliseconds(), 3)}`;
}

// zone is the time zone of every time that is shown.
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
export function offset(d = new Date()) {
  const min = -d.getTimezoneOffset(), abs = Math.abs(min);
  return `UTC${min < 0 ? "−" : "+"}${pad(Math.floor(abs / 60))}:${pad(abs % 60)}`;
}

// momentsIn writes the moments that a node's text names as this page does.
export const momentsIn = (text) => String(text || "").replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (m) => clock(Date.parse(m)));

export const reasons = {
  max_attempts: "all attempts failed",
  expired: "it was too late to call",
  stopped: "the receiver said stop",
  refused: "its address is not allowed",
};
