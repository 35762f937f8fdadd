import { createHmac, createPublicKey, generateKeyPairSync, randomBytes, timingSafeEqual, verify, type KeyObject } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { components } from "./openapi.js";

type BatchCall = components["schemas"]["BatchCall"];

export interface ReceiverOptions {
  /**
   * The topic's, whsec_…: a call is good when one of them signed it. During a rotation give the old
   * and the new.
   */
  secrets?: string[];
  /**
   * The topic's, whpk_…, which any read of the topic shows: a call is good when one of these or of
   * secrets fits.
   */
  publicKeys?: string[];
  /** Takes calls without looking at signatures; then there must be neither of these. */
  unsigned?: boolean;
  /** How far the signature's time may be from the clock; 5 minutes. */
  toleranceMs?: number;
  /** Bounds a body in bytes; 1 MiB. */
  maxBody?: number;
  /** Drops calls of leases that are over; new Fences(). */
  fences?: FenceStore;
  /** The clock, Unix milliseconds. */
  now?: () => number;
}

/**
 * Remembers the highest fence of each timer. One that is written in one transaction with the
 * handler's effects is complete.
 */
export interface FenceStore {
  /**
   * Whether the fence is higher than all that were admitted of the timer; if so it is remembered.
   */
  admit(topic: string, timer: string, fence: number): boolean | Promise<boolean>;
}

/**
 * A FenceStore in memory, good for one process. It holds the timers that were called last, 100,000
 * of them.
 */
export class Fences implements FenceStore {
  readonly #max: number;
  readonly #fences = new Map<string, number>(); // in order of the last call

  constructor(max = 100_000) {
    this.#max = max;
  }

  admit(topic: string, timer: string, fence: number): boolean {
    const name = `${topic}/${timer}`; // no topic has a slash
    const highest = this.#fences.get(name);
    if (highest !== undefined && fence <= highest) return false;
    this.#fences.delete(name);
    if (this.#fences.size >= this.#max) this.#fences.delete(this.#fences.keys().next().value as string);
    this.#fences.set(name, fence);
    return true;
  }
}

/** The attributes of CloudEvents 1.0, as they came. No signature covers them. */
export interface CloudEvent {
  id: string;
  source: string;
  type: string;
  subject: string;
  time: string;
}

/** One call of a node. */
export class Delivery {
  readonly topic: string;
  readonly timer: string;
  /**
   * The idempotence key, webhook-id: the same for all attempts of one version of one timer, another
   * for any other.
   */
  readonly id: string;
  readonly attempt: number;
  /** Grows with every attempt over the life of the timer's id. */
  readonly fence: number;
  readonly due: Date;
  /** When somebody fired the timer by hand, perhaps before due. No signature covers it. */
  readonly asked: Date | undefined;
  /** Topics with ack report: answer 202, and ack, nack or extend with it later. */
  readonly receipt: string;
  readonly body: Buffer;
  /** The payload's, "" without one. The signature covers that of a call of many. */
  readonly contentType: string;
  /** Of topics with format cloudevents. */
  readonly cloudEvent: CloudEvent | undefined;

  constructor(header: (name: string) => string, body: Buffer) {
    this.topic = header("carillon-topic");
    this.timer = header("carillon-timer");
    this.id = header("webhook-id");
    this.due = new Date(integer(header("carillon-due")));
    this.attempt = integer(header("carillon-attempt"));
    this.fence = integer(header("carillon-fence"));
    if (!this.topic || !this.timer || !this.id || Number.isNaN(+this.due + this.attempt + this.fence)) {
      throw new Refusal(400, "this is no call of Carillon: its headers are missing");
    }
    const asked = integer(header("carillon-asked"));
    this.asked = Number.isNaN(asked) ? undefined : new Date(asked);
    this.receipt = header("carillon-receipt");
    this.body = body;
    this.contentType = header("content-type");
    this.cloudEvent = header("ce-specversion")
      ? { id: header("ce-id"), source: header("ce-source"), type: header("ce-type"), subject: header("ce-subject"), time: header("ce-time") }
      : undefined;
  }

  /** The payload, where it is JSON. */
  json<T = unknown>(): T {
    return JSON.parse(this.body.toString()) as T;
  }
}

/**
 * Has a timer come again after that long instead of the topic's backoff. Calls come again after 1 s
 * to 1 h.
 */
export class RetryAfter extends Error {
  override readonly name = "RetryAfter";
  constructor(
    readonly delayMs: number,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/**
 * Has a call answered 410: no attempt will succeed, and the timer is a dead letter at once. For a
 * worker it is an error as any other.
 */
export class Stop extends Error {
  override readonly name = "Stop";
}

/** A call that no handler gets, and the status that it is answered with. */
export class Refusal extends Error {
  override readonly name = "Refusal";
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/**
 * Handles a call. It returns nothing for 204, or a status: 202 where the topic's ack is report. Any
 * error is 500, but RetryAfter 503 and Stop 410.
 */
export type Handler = (delivery: Delivery) => unknown;

/**
 * Handles the timers of a call of many, or the one of a call for one, as a retry is. It returns what
 * failed: an error at the place of each such timer, and undefined for the others; nothing, or a
 * shorter list, means that the rest is done. An error that it throws fails all.
 */
export type ManyHandler = (deliveries: Delivery[]) => (Error | undefined)[] | void | Promise<(Error | undefined)[] | void>;

interface Answer {
  status: number;
  headers: Record<string, string>;
  text: string;
}

type HeaderValues = Record<string, string | string[] | undefined> | Headers;

/**
 * Receives callbacks: it checks signatures, and drops calls of leases that are over. Calls come at
 * least once.
 */
export class Receiver {
  readonly #keys: Buffer[];
  readonly #public: KeyObject[];
  readonly #toleranceMs: number;
  readonly #maxBody: number;
  readonly #fences: FenceStore;
  readonly #now: () => number;
  readonly #unsigned: boolean;

  constructor(o: ReceiverOptions) {
    this.#keys = (o.secrets ?? []).map(parseSecret);
    this.#public = (o.publicKeys ?? []).map(parsePublicKey);
    this.#unsigned = o.unsigned ?? false;
    if (this.#unsigned !== (this.#keys.length + this.#public.length === 0)) {
      throw new TypeError("carillon: a receiver needs the topic's secrets or publicKeys, or unsigned to do without");
    }
    this.#toleranceMs = o.toleranceMs ?? 300_000;
    this.#maxBody = o.maxBody ?? 1 << 20;
    this.#fences = o.fences ?? new Fences();
    this.#now = o.now ?? Date.now;
  }

  /**
   * Checks a call and reads it. It throws a Refusal: 401 for a signature, 400 for a request that is
   * no call, 409 for a lease that is over.
   */
  async receive(headers: HeaderValues, body: Buffer): Promise<Delivery> {
    const header = reader(headers);
    if (!this.#unsigned && !this.#signed(header, body)) throw new Refusal(401, "the signature is not good");
    const delivery = new Delivery(header, body);
    if (!(await this.#fences.admit(delivery.topic, delivery.timer, delivery.fence))) throw new Refusal(409, staleText);
    return delivery;
  }

  /**
   * receive for topics with batch: the timers of a call of many, without those whose lease is over,
   * or the one of a call for one.
   */
  async receiveMany(headers: HeaderValues, body: Buffer): Promise<Delivery[]> {
    return (await this.#receiveMany(headers, body)).fresh;
  }

  /** The timers of a call, and apart from them those whose lease is over. */
  async #receiveMany(headers: HeaderValues, body: Buffer): Promise<{ fresh: Delivery[]; stale: Delivery[] }> {
    const header = reader(headers);
    if (header("carillon-timer")) return { fresh: [await this.receive(headers, body)], stale: [] };
    if (!this.#unsigned && !this.#signed(header, body)) throw new Refusal(401, "the signature is not good");
    const fresh: Delivery[] = [];
    const stale: Delivery[] = [];
    for (const delivery of many(header, body)) {
      const admitted = await this.#fences.admit(delivery.topic, delivery.timer, delivery.fence);
      (admitted ? fresh : stale).push(delivery);
    }
    return { fresh, stale };
  }

  /**
   * A listener of node:http, also for Express and its like: before their parsers of bodies, or
   * behind one that leaves a Buffer.
   */
  listener(handle: Handler): (req: IncomingMessage, res: ServerResponse) => void {
    return this.#listener((headers, body) => this.#answer(headers, body, handle));
  }

  /** A handler of fetch's Request, as many frameworks take it. */
  fetch(handle: Handler): (request: Request) => Promise<Response> {
    return this.#fetch((headers, body) => this.#answer(headers, body, handle));
  }

  /** listener for topics with batch. */
  listenerOfMany(handle: ManyHandler): (req: IncomingMessage, res: ServerResponse) => void {
    return this.#listener((headers, body) => this.#answerMany(headers, body, handle));
  }

  /** fetch for topics with batch. */
  fetchOfMany(handle: ManyHandler): (request: Request) => Promise<Response> {
    return this.#fetch((headers, body) => this.#answerMany(headers, body, handle));
  }

  #listener(answer: (headers: HeaderValues, body: Promise<Buffer>) => Promise<Answer>) {
    return (req: IncomingMessage, res: ServerResponse) => {
      const given = (req as { body?: unknown }).body;
      const body = Buffer.isBuffer(given) ? Promise.resolve(given) : read(req.iterator({ destroyOnReturn: false }), this.#maxBody);
      void answer(req.headers, body).then(({ status, headers, text }) => res.writeHead(status, headers).end(text));
    };
  }

  #fetch(answer: (headers: HeaderValues, body: Promise<Buffer>) => Promise<Answer>) {
    return async (request: Request) => {
      const { status, headers, text } = await answer(request.headers, read(request.body ?? [], this.#maxBody));
      return new Response(status === 204 ? null : text, { status, headers });
    };
  }

  async #answer(headers: HeaderValues, body: Promise<Buffer>, handle: Handler): Promise<Answer> {
    try {
      const status = await handle(await this.receive(headers, await body));
      return { status: typeof status === "number" ? status : 204, headers: {}, text: "" };
    } catch (err) {
      return failure(err);
    }
  }

  async #answerMany(headers: HeaderValues, body: Promise<Buffer>, handle: ManyHandler): Promise<Answer> {
    try {
      const { fresh, stale } = await this.#receiveMany(headers, await body);
      const errors = (fresh.length > 0 && (await handle(fresh))) || [];
      if (reader(headers)("carillon-timer")) return errors[0] ? failure(errors[0]) : { status: 204, headers: {}, text: "" };
      // The call may be the copy of one that is still being handled: what is stale has failed.
      const failed = stale.map(({ id }) => ({ webhook_id: id, error: staleText }));
      failed.push(...fresh.flatMap(({ id }, i) => (errors[i] ? [{ webhook_id: id, error: errors[i].message }] : [])));
      return { status: 200, headers: { "Content-Type": "application/json" }, text: JSON.stringify({ failed }) };
    } catch (err) {
      return failure(err);
    }
  }

  /**
   * Webhook-Signature covers the body, by the Standard Webhooks scheme; Carillon-Signature covers
   * the Carillon-* headers, which that scheme leaves open: without it a call that was overheard
   * could be sent again for another timer.
   */
  #signed(header: (name: string) => string, body: Buffer): boolean {
    const id = header("webhook-id");
    const stamp = header("webhook-timestamp");
    if (!id || !(Math.abs(this.#now() - integer(stamp) * 1000) <= this.#toleranceMs)) return false;
    const values = ["carillon-v1", ...signedHeaders.map(header)].join("\n");
    const ofBody = this.#signs(header("webhook-signature"), Buffer.concat([Buffer.from(`${id}.${stamp}.`), body]));
    return this.#signs(header("carillon-signature"), Buffer.from(values)) && ofBody;
  }

  /**
   * Whether a header holds the signature that one of the secrets or private keys makes of a text.
   */
  #signs(header: string, text: Buffer): boolean {
    const offered = header.split(" ", maxSignatures);
    const wanted = this.#keys.map((key) => Buffer.from(`v1,${createHmac("sha256", key).update(text).digest("base64")}`));
    return offered.some((one) => {
      const given = Buffer.from(one);
      if (wanted.some((want) => want.length === given.length && timingSafeEqual(want, given))) return true;
      const signature = one.startsWith("v1a,") ? bytes(one.slice(4)) : undefined;
      return signature?.length === 64 && this.#public.some((key) => verify(null, text, key, signature));
    });
  }
}

const staleText = "a later attempt of this timer has been here";

/** The answer to a call that failed so. */
function failure(err: unknown): Answer {
  const text = String((err as Error | undefined)?.message || err);
  if (err instanceof Refusal) return { status: err.status, headers: {}, text };
  if (err instanceof Stop) return { status: 410, headers: {}, text };
  if (err instanceof RetryAfter) return { status: 503, headers: { "Retry-After": String(Math.max(Math.ceil(err.delayMs / 1000), 1)) }, text };
  return { status: 500, headers: {}, text };
}

/** The timers in the body of a call of many. */
function many(header: (name: string) => string, body: Buffer): Delivery[] {
  const text = body.toString();
  let timers: BatchCall["timers"] = [];
  try {
    timers = (JSON.parse(text) as BatchCall).timers;
  } catch {
    // It is refused below.
  }
  if (!header("webhook-id") || !Array.isArray(timers) || timers.length === 0 || !timers.every(Boolean)) {
    throw new Refusal(400, "this is no call of Carillon: it has neither the headers of one timer nor a body of many");
  }
  const sources = members(members(text).get("timers") ?? "");
  return timers.map((t, i) => {
    const source = t.payload_base64 === undefined ? members(sources.get(String(i)) ?? "").get("payload") : undefined;
    const payload = source === undefined ? Buffer.from(t.payload_base64 ?? "", "base64") : Buffer.from(source);
    const usual = source !== undefined ? "application/json" : t.payload_base64 !== undefined ? "application/octet-stream" : "";
    const values: Record<string, unknown> = {
      "carillon-topic": t.topic, "carillon-timer": t.id, "webhook-id": t.webhook_id, "carillon-due": t.due_ms, "carillon-attempt": t.attempt, "carillon-fence": t.fence,
      "carillon-asked": t.asked_ms, "content-type": t.content_type || usual,
    };
    return new Delivery((name) => String(values[name] ?? ""), payload);
  });
}

/**
 * The members of an object, or the elements of an array by their numbers, as they are spelled in
 * good JSON: a payload keeps its bytes. Those of anything else are none. O(text).
 */
function members(text: string): Map<string, string> {
  const found = new Map<string, string>();
  let [depth, from] = [0, 0];
  let name: string | undefined;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    const ends = c === "}" || c === "]";
    if (c === '"') {
      while (text[++i] !== '"') if (text[i] === "\\") i++;
    } else if (depth === 1 && c === ":") {
      name = JSON.parse(text.slice(from, i)) as string;
      from = i + 1;
    } else if (depth === 1 && (c === "," || ends)) {
      const value = text.slice(from, i).trim();
      if (value) found.set(name ?? String(found.size), value);
      [from, name] = [i + 1, undefined];
    }
    if ((c === "{" || c === "[") && depth++ === 0) from = i + 1;
    if (ends) depth--;
  }
  return found;
}

const maxSignatures = 16; // of one header: bounds the work that it can ask for

/**
 * The headers whose values Carillon-Signature covers, in this order. One that is missing counts as
 * empty.
 */
const signedHeaders = [
  "webhook-id", "webhook-timestamp", "carillon-topic", "carillon-timer", "carillon-due", "carillon-attempt", "carillon-fence", "carillon-receipt",
];

/** Makes a secret to sign callbacks with. */
export const newSecret = () => `whsec_${randomBytes(32).toString("base64")}`;

/**
 * Makes a private key to sign callbacks with, whsk_…, and the public one that checks them, whpk_….
 */
export function newSigningKey(): { privateKey: string; publicKey: string } {
  const { d = "", x = "" } = generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" });
  const [seed, check] = [Buffer.from(d, "base64url"), Buffer.from(x, "base64url")];
  return { privateKey: `whsk_${Buffer.concat([seed, check]).toString("base64")}`, publicKey: `whpk_${check.toString("base64")}` };
}

function parseSecret(text: string): Buffer {
  const key = text.startsWith("whsec_") ? bytes(text.slice(6)) : undefined;
  if (!key || key.length < 24 || key.length > 64) throw new TypeError("carillon: a secret is whsec_ and the base64 of 24 to 64 bytes");
  return key;
}

function parsePublicKey(text: string): KeyObject {
  const key = text.startsWith("whpk_") ? bytes(text.slice(5)) : undefined;
  if (key?.length !== 32) throw new TypeError("carillon: a public key is whpk_ and the base64 of 32 bytes");
  return createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: key.toString("base64url") }, format: "jwk" });
}

/** Standard base64 with its padding; undefined for anything else. */
function bytes(text: string): Buffer | undefined {
  const b = Buffer.from(text, "base64");
  return b.toString("base64") === text ? b : undefined;
}

const integer = (text: string) => (/^\d{1,15}$/.test(text) ? Number(text) : NaN);

function reader(headers: HeaderValues): (name: string) => string {
  if (headers instanceof Headers) return (name) => headers.get(name) ?? "";
  return (name) => String(headers[name] ?? "");
}

async function read(stream: AsyncIterable<Uint8Array> | ReadableStream<Uint8Array> | never[], max: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of stream as AsyncIterable<Uint8Array>) {
    chunks.push(chunk);
    if ((size += chunk.length) > max) throw new Refusal(413, "body too large");
  }
  return Buffer.concat(chunks);
}
