// The frame around the pages: who is asked, where one goes, and signing in.
import { byTestClock, get, html, local, loadScopes, offset, render, setToken, token, useEffect, useLayoutEffect, useLoad, useRef, useState, zone } from "./lib.js";
import { Icon, Toasts } from "./parts.js";
import { Overview } from "./overview.js";
import { Topics } from "./topics.js";
import { Topic } from "./topic.js";
import { Timer } from "./timer.js";
import { Search } from "./search.js";
import { Dead } from "./dead.js";
import { Due } from "./due.js";
import { Receivers } from "./receivers.js";
import { Cluster } from "./cluster.js";
import { Live } from "./live.js";

const pages = [["", "Overview"], ["topics", "Topics"], ["dead", "Dead letters"], ["due", "Upcoming"], ["receivers", "Receivers"], ["cluster", "Cluster"], ["live", "Live"]];

// where reads the part of the address behind the #: a path, and parameters.
function where() {
  const [path, params] = (location.hash.replace(/^#\/?/, "") || "").split("?");
  let segments;
  try { segments = path.split("/").filter(Boolean).map(decodeURIComponent); } catch { segments = []; }
  return { segments, params: Object.fromEntries(new URLSearchParams(params || "")) };
}

function page({ segments, params }) {
  const [first, topic, timers, id] = segments;
  switch (first === "topics" ? first : segments.join("/")) {
    case "": return [html`<${Overview} />`, "Overview"];
    case "topics":
      if (!topic) return [html`<${Topics} />`, "Topics"];
      if (timers === "timers" && segments.length === 4) return [html`<${Timer} key=${topic + "/" + id} topic=${topic} id=${id} />`, id];
      if (!timers) return [html`<${Topic} key=${topic} topic=${topic} params=${params} />`, topic];
      break;
    case "search": return [html`<${Search} key=${params.q} q=${params.q || ""} />`, `Search: ${params.q || ""}`];
    case "dead": return [html`<${Dead} params=${params} />`, "Dead letters"];
    case "due": return [html`<${Due} params=${params} />`, "Upcoming"];
    case "receivers": return [html`<${Receivers} />`, "Receivers"];
    case "cluster": return [html`<${Cluster} />`, "Cluster"];
    case "live": return [html`<${Live} params=${params} />`, "Live"];
  }
  return [html`<div class="card"><h1>Page not found</h1><p><a href="#/">Open the overview</a></p></div>`, "Page not found"];
}

function Theme() {
  const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const [isDark, set] = useState(dark());
  useEffect(() => {
    const media = matchMedia("(prefers-color-scheme: dark)"), look = () => set(dark());
    media.addEventListener("change", look);
    return () => media.removeEventListener("change", look);
  }, []);
  const turn = () => {
    const next = isDark ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try { localStorage.setItem("carillon-theme", next); } catch { /* not kept, then */ }
    set(!isDark);
    window.dispatchEvent(new Event("carillon-theme"));
  };
  return html`<button onClick=${turn} aria-label=${isDark ? "Use light colours" : "Use dark colours"} title=${isDark ? "Light colours" : "Dark colours"}>${isDark ? "☀" : "☾"}</button>`;
}

// SignIn asks for a token: on a page of its own, or above the page whose token has ended, which keeps
// what is typed there.
function SignIn({ why, above, done }) {
  const [error, setError] = useState(why);
  const dialog = useRef();
  useLayoutEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => setTimeout(() => { if (document.activeElement === document.body && before.isConnected) before.focus(); });
  }, []);
  const submit = async (e) => {
    e.preventDefault();
    const text = new FormData(e.target).get("token").trim();
    setToken(text);
    try {
      await get("/v1/topics", { limit: 1 });
      done();
    } catch (problem) {
      if (problem.status === 403) { done(); return; } // a token without the scope read: pages say what it may not
      setToken("");
      setError(problem.status === 401 ? "The node does not know this token. To make one: carillon token" : problem.message);
    }
  };
  const content = html`<h1>Sign in to Carillon</h1>
    <form class="stack" onSubmit=${submit}>
      <label class="field">Token <input name="token" type="password" autocomplete="off" spellcheck="false" required placeholder="crl_…" /></label>
      ${error && html`<p class="notice bad" role="alert">${error}</p>`}
      <button class="main">Sign in</button>
    </form>
    <p class="muted small">The token stays in this tab until you close it. The scope <code>read</code> shows timers and nodes; <code>cluster</code> shows rates and receivers. Each action needs its own scope.</p>`;
  return above ? html`<dialog class="stack" aria-label="Sign in" ref=${dialog} onClose=${() => dialog.current?.showModal()}>${content}</dialog>` : html`<main class="signin card stack">${content}</main>`;
}

function TestClock() {
  const clock = useLoad((s) => get("/v1/clock", {}, s), [], 2000);
  return html`<p class="notice warn">Test clock${clock.data && html`: it is <strong>${local(clock.data.now_ms)}</strong>`}. Time stands still until <code>carillon ctl clock</code> moves it.</p>`;
}

function App() {
  const [at, setAt] = useState(where());
  const [signIn, setSignIn] = useState(null);
  const [known, setKnown] = useState(false);
  const begin = async () => {
    if (!await loadScopes()) return;
    setKnown(true);
    window.dispatchEvent(new Event("carillon-signedin"));
  };
  useEffect(() => { if (!signIn) begin(); }, [signIn]);
  const main = useRef();
  const moved = useRef(false);
  useEffect(() => {
    const go = () => { moved.current = true; setAt(where()); };
    const ask = () => setSignIn((is) => is || { why: token() ? "The node does not know your token any more. Sign in with another one." : "" });
    window.addEventListener("hashchange", go);
    window.addEventListener("carillon-signin", ask);
    // "/" goes to the search, unless one types or a form is open.
    const slash = (e) => {
      if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select") || document.querySelector("dialog[open]")) return;
      e.preventDefault();
      document.querySelector("form.search input")?.focus();
    };
    window.addEventListener("keydown", slash);
    return () => { window.removeEventListener("keydown", slash); window.removeEventListener("hashchange", go); window.removeEventListener("carillon-signin", ask); };
  }, []);
  const [content, title] = page(at);
  useEffect(() => {
    const current = document.querySelector("nav.pages [aria-current]");
    // Not scrollIntoView: some browsers have the next Tab start from there, past the way to the content.
    const nav = current?.parentElement;
    if (nav) nav.scrollLeft = current.offsetLeft - nav.offsetLeft - (nav.clientWidth - current.offsetWidth) / 2;
    document.title = `${title} · Carillon`;
    if (moved.current && main.current) { main.current.focus({ preventScroll: true }); window.scrollTo(0, 0); }
  }, [title]);
  const asks = signIn && html`<${SignIn} why=${signIn.why} above=${known} done=${() => setSignIn(null)} />`;
  if (asks && !known) return asks;
  const search = (e) => {
    e.preventDefault();
    const q = new FormData(e.target).get("q").trim();
    if (!q) return;
    e.target.reset();
    location.hash = `#/search?q=${encodeURIComponent(q)}`;
  };
  const here = at.segments[0] || "";
  return html`<a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); main.current.focus(); }}>Skip to content</a>
    <header class="top"><div class="bar">
      <div class="between">
        <a class="brand" href="#/"><img src="/console/icon.svg" alt="" />Carillon</a>
        <form class="search" role="search" onSubmit=${search}>
          <input name="q" aria-label="Find a timer by its id or a label" placeholder="Timer id or label  ( / )" spellcheck="false" autocomplete="off" />
          <button>Find</button>
        </form>
        <div class="row">${token() && html`<button onClick=${() => { setToken(""); setKnown(false); setSignIn({ why: "" }); }}>Sign out</button>`}<${Theme} /></div>
      </div>
      <nav class="pages" aria-label="Pages">${pages.map(([name, text]) => html`<a href=${"#/" + name} aria-current=${here === name ? "page" : undefined}><${Icon} name=${name} />${text}</a>`)}</nav>
      <${Toasts} />
    </div></header>
    <main id="main" tabindex="-1" ref=${main}>${known && byTestClock() && html`<${TestClock} />`}${known && content}</main>${asks}
    <footer class="muted small">Times are in ${zone} (${offset()}), 24 hours.</footer>`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
