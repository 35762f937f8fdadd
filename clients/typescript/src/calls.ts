import { Problem, Unanswered, readProblem } from "./errors.js";
import { Leaders, leaderHeader } from "./leaders.js";

export interface Options {
  /** crl_…; white space around it is dropped. */
  token?: string;
  /**
   * Makes the requests, for TLS settings or proxies of your own. Its redirects are not followed.
   */
  fetch?: typeof globalThis.fetch;
  userAgent?: string;
  /** How often a call that is safe to repeat is repeated at most; 4. */
  retries?: number;
  /** The longest pause before a repetition, even if Retry-After is longer; 10 s. */
  maxWaitMs?: number;
  /**
   * The limit of a call with its repetitions, where the call gives none; a minute. Changes of many
   * timers and streams have none.
   */
  timeoutMs?: number;
}

/** Limits of one call. */
export interface CallOptions {
  signal?: AbortSignal;
  timeoutMs?: number;
}

/** One call of the API. */
export interface Request extends CallOptions {
  method: "GET" | "PUT" | "POST" | "PATCH" | "DELETE";
  /** As path makes it. */
  path: string;
  /** Values that are undefined are left out; those of a list are repeated. */
  query?: object;
  /** Is sent as JSON; undefined: none. */
  body?: unknown;
  headers?: Record<string, string>;
  /**
   * The one timer that the call is about: it goes to the node that leads its shard, if that is
   * known.
   */
  topic?: string;
  timer?: string;
  /**
   * The call asks for the same when it is made twice, so that it is repeated after 429, 503 and
   * failed connections.
   */
  repeatable?: boolean;
}

/** The path of a call: /v1/ and the parts, each of them escaped. */
export const path = (...parts: string[]) => `/v1/${parts.map(escape).join("/")}`;

function escape(part: string): string {
  try {
    return encodeURIComponent(part);
  } catch (err) {
    throw new TypeError(`carillon: ${JSON.stringify(part)} cannot be sent: surrogates not allowed`, { cause: err });
  }
}

/** JSON. */
function encode(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch (err) {
    throw new TypeError(`carillon: the body cannot be sent as JSON: ${(err as Error).message}`, { cause: err });
  }
}

/** A segment that fetch would resolve, which makes the path of another call. */
const dots = /\/(\.|%2e){1,2}(\/|$)/i;

/** Makes calls at any of a cluster's nodes. */
export class Calls {
  readonly #nodes: string[];
  readonly #leaders: Leaders;
  readonly #headers: Record<string, string>;
  readonly #fetch: typeof globalThis.fetch;
  readonly #retries: number;
  readonly #maxWaitMs: number;
  readonly #timeoutMs: number;
  #current = 0; // the node that answered last, modulo their number

  constructor(urls: string | string[], o: Options) {
    this.#nodes = (Array.isArray(urls) ? urls : [urls]).map((url) => url.replace(/\/+$/, ""));
    if (this.#nodes.length === 0) throw new TypeError("carillon: no URL of a node");
    this.#leaders = new Leaders(this.#nodes.map(addressOf));
    this.#headers = { "User-Agent": o.userAgent ?? "carillon-client-typescript" };
    const token = o.token?.trim();
    if (token) {
      if (!/^[!-~]+$/.test(token)) throw new TypeError("carillon: the token has a character that no token has");
      this.#headers["Authorization"] = `Bearer ${token}`;
    }
    this.#fetch = o.fetch ?? globalThis.fetch;
    this.#retries = Math.max(o.retries ?? 4, 0);
    this.#maxWaitMs = o.maxWaitMs ?? 10_000;
    this.#timeoutMs = o.timeoutMs ?? 60_000;
  }

  /**
   * Makes a call and reads its answer; undefined where that has no body. mayRepeat is asked, with
   * the time that is left, before a call is repeated that may have been done.
   */
  async json(r: Request, mayRepeat?: (timeoutMs: number) => Promise<boolean>): Promise<unknown> {
    const limit = new Limit(r.signal, r.timeoutMs ?? this.#timeoutMs);
    try {
      for (let tries = 0; ; tries++) {
        try {
          return await this.#anyNode(r, (one) => this.#once(one, limit));
        } catch (err) {
          const pause = this.pause(err, tries);
          if (!r.repeatable || tries >= this.#retries || !worthRepeating(err) || !(await limit.sleep(pause))) throw err;
          if (mayRepeat && !notDone(err) && !(await mayRepeat(limit.left))) throw err;
        }
      }
    } finally {
      limit.end();
    }
  }

  /**
   * Makes a call once, and gives the answer with its body to be read. It ends with r.signal; or with
   * silence, which is the node's fault.
   */
  async open(r: Request, silence?: AbortSignal): Promise<{ body: ReadableStream<Uint8Array>; passOver: () => void }> {
    const { response, passOver } = await this.#anyNode(r, (one) => this.#send(one, silence ?? r.signal));
    if (!response.body) throw new Unanswered(`carillon: ${r.method} ${r.path}: the answer is empty`);
    return { body: response.body as ReadableStream<Uint8Array>, passOver };
  }

  /** How long to wait before a call is made again that ended so, after as many tries before. */
  pause(err: unknown, tries: number): number {
    const backoff = 50 * 2 ** Math.min(tries, 10) * (0.5 + Math.random());
    return Math.min(Math.max(backoff, err instanceof Problem ? err.retryAfterMs : 0), this.#maxWaitMs);
  }

  /**
   * Makes the call at the first node that takes a connection: the others have seen nothing of it.
   */
  async #anyNode<T>(r: Request, make: (r: Request) => Promise<T>): Promise<T> {
    for (let tried = 1; ; tried++) {
      try {
        return await make(r);
      } catch (err) {
        if (!neverSent(err) || tried >= this.#nodes.length || r.signal?.aborted) throw err;
      }
    }
  }

  async #once(r: Request, limit: Limit): Promise<unknown> {
    try {
      const { response, passOver } = await this.#send(r, limit.signal);
      const text = await readText(r, response, passOver);
      return text === "" ? undefined : parse(r, text);
    } catch (err) {
      throw limit.reason(r) ?? err;
    }
  }

  /**
   * Makes the call at one node. After a failure, and a 503, the next call goes to the next node.
   */
  async #send(r: Request, signal?: AbortSignal): Promise<{ response: Response; passOver: () => void }> {
    if (dots.test(r.path)) throw new Problem(400, { code: "bad_request", detail: "path: dot segment" });
    const at = this.#current;
    const leader = this.#leaders.node(r.topic ?? "", r.timer ?? "");
    const node = leader ?? at % this.#nodes.length;
    const passOver = () => {
      if (leader !== undefined) this.#leaders.forget(r.topic ?? "", r.timer ?? "");
      if (this.#current === at && at % this.#nodes.length === node) this.#current++;
    };
    const headers: Record<string, string> = { ...this.#headers, ...r.headers };
    const init: RequestInit = { method: r.method, headers, redirect: "manual", signal: signal ?? null };
    if (r.body !== undefined) {
      init.body = encode(r.body);
      headers["Content-Type"] = "application/json";
    }
    let response: Response;
    try {
      response = await this.#fetch.call(undefined, this.#nodes[node] + r.path + query(r.query), init);
    } catch (err) {
      if (!r.signal?.aborted) passOver();
      throw new Unanswered(`carillon: ${r.method} ${r.path}: ${reasonOf(err)}`, { cause: err });
    }
    const said = response.headers.get(leaderHeader);
    if (said) this.#leaders.learn(said);
    if (response.ok) return { response, passOver };
    const text = await readText(r, response, passOver);
    if (response.status === 503) passOver();
    throw readProblem(response, text);
  }
}

/** A signal that ends with the caller's, or when time is up. */
class Limit {
  readonly #caller: AbortSignal | undefined;
  readonly #own = new AbortController();
  readonly #until: number;
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #stop = () => this.#own.abort();

  constructor(caller: AbortSignal | undefined, ms: number) {
    this.#caller = caller;
    this.#until = performance.now() + ms;
    if (ms < 2 ** 31) this.#timer = setTimeout(this.#stop, ms); // longer ones would be over at once
    caller?.addEventListener("abort", this.#stop);
    if (caller?.aborted) this.#stop();
  }

  get signal(): AbortSignal {
    return this.#own.signal;
  }

  get left(): number {
    return this.#until - performance.now();
  }

  /** Waits; false, and sooner, when the limit is over before. */
  async sleep(ms: number): Promise<boolean> {
    if (performance.now() + ms >= this.#until) return false;
    await sleep(ms, this.signal);
    return !this.signal.aborted;
  }

  /** The error of a call that this limit has ended. */
  reason(r: Request): unknown {
    if (this.#caller?.aborted) return this.#caller.reason as unknown;
    if (this.signal.aborted) return new Unanswered(`carillon: ${r.method} ${r.path}: no answer in time`);
    return undefined;
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener("abort", this.#stop);
  }
}

/** Waits, or until the signal ends. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((done) => {
    if (signal?.aborted) return done();
    const timer = setTimeout(over, ms);
    signal?.addEventListener("abort", over);
    function over() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", over);
      done();
    }
  });
}

async function readText(r: Request, response: Response, passOver: () => void): Promise<string> {
  try {
    return await response.text();
  } catch (err) {
    passOver();
    throw new Unanswered(`carillon: ${r.method} ${r.path}: ${reasonOf(err)}`, { cause: err });
  }
}

/** A 2xx that is no JSON came from something between us and the node. */
function parse(r: Request, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (err) {
    throw new Unanswered(`carillon: ${r.method} ${r.path}: the answer cannot be read: ${(err as Error).message}`, { cause: err });
  }
}

/** fetch puts the reason into the cause of its error. */
function reasonOf(err: unknown): string {
  const cause = (err as Error).cause;
  return String((cause as Error | undefined)?.message || (cause as { code?: string } | undefined)?.code || (err as Error).message);
}

function worthRepeating(err: unknown): boolean {
  if (err instanceof Unanswered) return !(err.cause instanceof SyntaxError); // who answered so does it again
  return err instanceof Problem && (err.status === 429 || err.status === 503);
}

/** The call has changed nothing. */
function notDone(err: unknown): boolean {
  return err instanceof Problem ? err.status === 429 || /^(no_leader|overloaded|low_disk)$/.test(err.code) : neverSent(err);
}

/** No connection could be made, so that no node has seen the request. */
function neverSent(err: unknown): boolean {
  if (!(err instanceof Unanswered)) return false;
  const cause = (err.cause as Error | undefined)?.cause;
  const all = cause instanceof AggregateError ? cause.errors : [cause];
  return all.every((one: { code?: string; syscall?: string } | undefined) => {
    return one?.code === "UND_ERR_CONNECT_TIMEOUT" || one?.syscall === "connect" || one?.syscall === "getaddrinfo";
  });
}

function query(values: object | undefined): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(values ?? {})) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined) q.append(name, String(one));
  }
  return q.size > 0 ? `?${q}` : "";
}

/** host:port of a node's URL, as nodes name themselves. */
function addressOf(url: string): string {
  const u = URL.canParse(url) ? new URL(url) : undefined;
  if (!u || !/^https?:$/.test(u.protocol) || u.search || u.username || u.hash) {
    throw new TypeError(`carillon: ${JSON.stringify(url)} is not an address such as http://127.0.0.1:7700`);
  }
  return u.port ? u.host : `${u.host}:${u.protocol === "https:" ? 443 : 80}`;
}
