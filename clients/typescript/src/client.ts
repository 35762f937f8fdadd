import { Calls, path, type CallOptions, type Options, type Request } from "./calls.js";
import { Problem } from "./errors.js";
import { watch } from "./events.js";
import { work, type WorkOptions } from "./work.js";
import type * as t from "./types.js";

/** More than a node takes for one move of its clock. */
const moveLimit = 70_000;

/** The condition of a change of a timer. */
export interface TimerCondition extends CallOptions {
  /** Only this version of the timer. */
  ifMatch?: number;
}

/** The condition of a change of a topic. */
export interface TopicCondition extends CallOptions {
  /** Only this version of the topic: Topic.version. */
  ifMatch?: string;
  /**
   * Even if that takes away what pending timers or receivers need; of a deletion, what is in the
   * topic.
   */
  force?: boolean;
}

/** Options of a change of a topic's policy. */
export interface PolicyOptions extends TopicCondition {
  /** Change nothing: the answer is the topic as it would be, with its action and changes. */
  dryRun?: boolean;
}

/** Options of an add. */
export interface AddOptions extends CallOptions {
  /**
   * Instead of an id it makes the id, so that an add without an answer may be repeated, with a
   * delay, too.
   */
  idempotencyKey?: string;
}

/** Options of a put. */
export interface PutOptions extends TimerCondition {
  /** Refused where the id is in use. */
  createOnly?: boolean;
}

/** Options of a change of many timers. */
export interface ManyOptions extends CallOptions {
  /** Change nothing: the counts are those that the change would have. */
  dryRun?: boolean;
}

/**
 * Makes calls to one cluster. It connects to nothing yet.
 *
 * A refusal is a Problem, with its code. Any other error means that there was no answer, and then a
 * change may or may not have been made. Calls that are safe to repeat are repeated: reads, a cancel
 * without a condition, putTopic, ack, nack, extend, changes of a node but its removal, a put without
 * a condition or a count and with an absolute time, and an add with an id and an absolute time or
 * with an idempotencyKey, that does not repeat and names no merge rule but reject; where it may have
 * been done and the rule is the topic's, only if that rejects, too; and one with an id and a part,
 * of those that collect. Another node is tried when one does not answer; a call about one timer goes
 * to the node that leads its shard, where an answer has named that.
 */
export class Client {
  readonly #calls: Calls;

  /** Takes the URLs of nodes of one cluster. Any node takes any call. */
  constructor(urls: string | string[], options: Options = {}) {
    this.#calls = new Calls(urls, options);
  }

  /** Makes a call of a route that has no method here, and reads its answer. */
  request(r: Request): Promise<unknown> {
    return this.#calls.json(r);
  }

  #call<T>(r: Request): Promise<T> {
    return this.#calls.json(r) as Promise<T>;
  }

  /**
   * Adds a timer, and makes its topic if need be. Where the topic decides on a merge, its policy is
   * read before an add without an answer is repeated, for which the token needs the scope read: if
   * that merges, or cannot be read, the add is not repeated, which would merge it twice.
   */
  add(topic: string, spec: t.Spec, o: AddOptions = {}): Promise<t.Timer> {
    const rejects = Boolean(o.idempotencyKey) || spec.merge === "reject"; // whatever the topic's rule
    const identified = (spec.id && absolute(spec)) || o.idempotencyKey;
    const part = spec.id && spec.part;
    const repeatable = Boolean((identified && (rejects || !spec.merge) && !spec.repeat) || part);
    const asked = (timeoutMs: number) => this.#rejects(topic, { ...o, timeoutMs });
    return this.#calls.json({ ...addition(topic, spec, o), repeatable }, rejects || part ? undefined : asked) as Promise<t.Timer>;
  }

  /** Whether adds of a topic that name no rule are surely not merged. */
  async #rejects(topic: string, o: CallOptions): Promise<boolean> {
    try {
      return (await this.topic(topic, o)).policy.merge === "reject";
    } catch (err) {
      return err instanceof Problem && err.code === "unknown_topic";
    }
  }

  /** The timer that add would make, of a series with its first due times. Makes none. */
  dryAdd(topic: string, spec: t.Spec, o: AddOptions = {}): Promise<t.TimerToBe> {
    return this.#call({ ...addition(topic, spec, o), ...dryRun });
  }

  /** Creates the timer, or replaces all of it. */
  put(topic: string, id: string, spec: t.Spec, o: PutOptions = {}): Promise<t.Timer> {
    // A delay would start again, and so would a count.
    const repeatable = !o.ifMatch && !o.createOnly && absolute(spec) && !spec.repeat?.count;
    return this.#call({ ...ofTimer("PUT", topic, id, o), body: spec, repeatable });
  }

  /** Is to put what dryAdd is to add. */
  dryPut(topic: string, id: string, spec: t.Spec, o: PutOptions = {}): Promise<t.TimerToBe> {
    return this.#call({ ...ofTimer("PUT", topic, id, o), body: spec, ...dryRun });
  }

  /** Changes parts of a timer, all at once. null resets a field to the topic's default. */
  patch(topic: string, id: string, patch: t.Patch, o: TimerCondition = {}): Promise<t.Timer> {
    return this.#call({ ...ofTimer("PATCH", topic, id, o), body: patch });
  }

  /** Is to patch what dryAdd is to add. */
  dryPatch(topic: string, id: string, patch: t.Patch, o: TimerCondition = {}): Promise<t.TimerToBe> {
    return this.#call({ ...ofTimer("PATCH", topic, id, o), body: patch, ...dryRun });
  }

  /**
   * Cancels a timer: prevented, or in_flight while a call runs. When it came too late the error is
   * a Problem with the code over and the outcome.
   */
  async cancel(topic: string, id: string, o: TimerCondition = {}): Promise<"prevented" | "in_flight"> {
    const answer = await this.#call<{ outcome: "prevented" | "in_flight" }>({ ...ofTimer("DELETE", topic, id, o), repeatable: !o.ifMatch });
    return answer.outcome;
  }

  /**
   * Reads a timer as it stands; of a series with so many due times to come (next). The error is
   * unknown_timer when there is none.
   */
  get(topic: string, id: string, o: CallOptions & { next?: number } = {}): Promise<t.Timer> {
    return this.#call({ ...ofTimer("GET", topic, id, o), query: { next: o.next }, repeatable: true });
  }

  /** Has a timer's next attempt made now. */
  fire(topic: string, id: string, o: TimerCondition = {}): Promise<t.Timer> {
    return this.#call(ofTimer("POST", topic, id, o, "fire"));
  }

  /**
   * Holds a timer: no attempt starts until it is resumed. It may be held already. Occurrences of a
   * series that come due meanwhile are missed and follow its catch_up.
   */
  pauseTimer(topic: string, id: string, o: TimerCondition = {}): Promise<t.Timer> {
    return this.#call({ ...ofTimer("POST", topic, id, o, "pause"), repeatable: true });
  }

  /** Lets a timer that was paused go on. If its time has passed, it is called now. */
  resumeTimer(topic: string, id: string, o: TimerCondition = {}): Promise<t.Timer> {
    return this.#call({ ...ofTimer("POST", topic, id, o, "resume"), repeatable: true });
  }

  /** Goes through the timers that a filter selects, by due time, then id. */
  list(topic: string, filter: t.TimerFilter = {}, o: CallOptions = {}): AsyncGenerator<t.Timer> {
    return this.#pages(path("topics", topic, "timers"), "timers", filter, o);
  }

  /** Goes through the timers of all topics that the token reaches; id is a whole id. */
  listAll(filter: t.AllTimersFilter = {}, o: CallOptions = {}): AsyncGenerator<t.Timer> {
    return this.#pages(path("timers"), "timers", filter, o);
  }

  /**
   * Does up to 1,000 operations; those of one id in order. Each has its own result. brief leaves
   * the timers out of these.
   */
  async batch(topic: string, ops: t.Op[], o: CallOptions & { brief?: boolean } = {}): Promise<t.OpResult[]> {
    const query = { brief: o.brief || undefined };
    const answer = await this.#call<{ results: t.OpResult[] }>({ method: "POST", path: path("topics", topic, "batch"), query, body: { ops }, ...limits(o) });
    return answer.results;
  }

  /** Cancels the timers that are selected. It may take long, and is safe to repeat. */
  cancelAll(topic: string, selector: t.Selector, o: ManyOptions = {}): Promise<t.Changed> {
    return this.#many(path("topics", topic, "cancel"), selector, o);
  }

  /** Holds the timers that are selected. It may take long, and is safe to repeat. */
  pauseTimers(topic: string, selector: t.Selector, o: ManyOptions = {}): Promise<t.Changed> {
    return this.#many(path("topics", topic, "pause-timers"), selector, o);
  }

  /** Lets the timers that are selected go on. It may take long, and is safe to repeat. */
  resumeTimers(topic: string, selector: t.Selector, o: ManyOptions = {}): Promise<t.Changed> {
    return this.#many(path("topics", topic, "resume-timers"), selector, o);
  }

  /**
   * Moves the timers that are selected. It may take long. Repeating is safe but for a shift, which
   * moves the same timers again.
   */
  reschedule(topic: string, to: t.Reschedule, o: ManyOptions = {}): Promise<t.Changed> {
    return this.#many(path("topics", topic, "reschedule"), to, o);
  }

  /** Goes through a topic's dead letters, by when they died. */
  deadLetters(topic: string, filter: t.DeadFilter = {}, o: CallOptions = {}): AsyncGenerator<t.Timer> {
    return this.#pages(path("topics", topic, "dead"), "timers", filter, o);
  }

  /** Schedules dead letters again, with all their attempts before them. */
  redriveDead(topic: string, redrive: t.Redrive, o: ManyOptions = {}): Promise<t.Swept> {
    return this.#many(path("topics", topic, "dead", "redrive"), redrive, o);
  }

  /** Forgets dead letters. */
  purgeDead(topic: string, purge: t.Purge, o: ManyOptions = {}): Promise<t.Swept> {
    return this.#many(path("topics", topic, "dead", "purge"), purge, o);
  }

  /** Goes through a topic's timers that have ended, as long as its policy keeps them. */
  history(topic: string, filter: t.HistoryFilter = {}, o: CallOptions = {}): AsyncGenerator<t.Entry> {
    return this.#pages(path("topics", topic, "history"), "entries", filter, o);
  }

  /**
   * Sets a topic's whole policy, and makes the topic if need be. What is left out goes back to its
   * default.
   */
  putTopic(topic: string, policy: t.Policy, o: PolicyOptions = {}): Promise<t.Topic> {
    return this.#call({ ...ofTopic("PUT", topic, o), body: policy, repeatable: o.dryRun || !o.ifMatch });
  }

  /** Changes some fields of a topic's policy. null resets a field to its default. */
  patchTopic(topic: string, patch: t.PolicyPatch, o: PolicyOptions = {}): Promise<t.Topic> {
    return this.#call({ ...ofTopic("PATCH", topic, o), body: patch, repeatable: o.dryRun });
  }

  /** Reads a topic with its counts. */
  topic(topic: string, o: CallOptions = {}): Promise<t.Topic> {
    return this.#call({ ...ofTopic("GET", topic, o), repeatable: true });
  }

  /** Goes through the topics that the token sees, by name. */
  topics(filter: t.TopicFilter = {}, o: CallOptions = {}): AsyncGenerator<t.Topic> {
    return this.#pages(path("topics"), "topics", filter, o);
  }

  /**
   * Removes a topic, which must be empty unless force is set. Gives how many timers that cancelled.
   */
  async deleteTopic(topic: string, o: TopicCondition = {}): Promise<number> {
    return (await this.#call<{ cancelled: number }>(ofTopic("DELETE", topic, o))).cancelled;
  }

  /** Stops deliveries of a topic; its timers wait. */
  pause(topic: string, o: CallOptions = {}): Promise<t.Topic> {
    return this.#call({ method: "POST", path: path("topics", topic, "pause"), ...limits(o) });
  }

  /** Undoes pause. */
  resume(topic: string, o: CallOptions = {}): Promise<t.Topic> {
    return this.#call({ method: "POST", path: path("topics", topic, "resume"), ...limits(o) });
  }

  /**
   * Adds a signing secret, as newSecret makes it, before those that a topic has. Each of them signs
   * every call until finishRotation. Without one the node makes it, and the call is not repeated.
   */
  rotateSecret(topic: string, secret?: string, o: CallOptions = {}): Promise<t.Secrets> {
    return this.#call({ method: "POST", path: path("topics", topic, "secrets", "rotate"), body: { secret }, repeatable: Boolean(secret), ...limits(o) });
  }

  /** Drops all secrets of a topic but that with the fingerprint keep, or but the newest. */
  finishRotation(topic: string, keep?: string, o: CallOptions = {}): Promise<t.Secrets> {
    return this.#call({ method: "POST", path: path("topics", topic, "secrets", "finish"), body: { keep }, repeatable: true, ...limits(o) });
  }

  /**
   * Is rotateSecret for asymmetric keys, as newSigningKey makes them. Without one the node makes
   * it, and nobody sees it.
   */
  rotateSigningKey(topic: string, signingKey?: string, o: CallOptions = {}): Promise<t.PublicKeys> {
    const body = { signing_key: signingKey };
    return this.#call({ method: "POST", path: path("topics", topic, "signing-keys", "rotate"), body, repeatable: Boolean(signingKey), ...limits(o) });
  }

  /** Drops all signing keys of a topic but that of the public key keep, or but the newest. */
  finishKeyRotation(topic: string, keep?: string, o: CallOptions = {}): Promise<t.PublicKeys> {
    return this.#call({ method: "POST", path: path("topics", topic, "signing-keys", "finish"), body: { keep }, repeatable: true, ...limits(o) });
  }

  /**
   * Takes timers of a pull topic that are ready. None, after the wait, is no error. It is not
   * repeated: timers that a lost answer had leased come back when the lease ends. work does it all.
   */
  async pull(topic: string, o: CallOptions & { max?: number; wait?: string; lease?: string } = {}): Promise<t.Lease[]> {
    const body = { max: o.max, wait: o.wait, lease: o.lease };
    const limit = { ...limits(o), timeoutMs: o.timeoutMs ?? 120_000 }; // the longest wait, and a minute
    return (await this.#call<{ timers: t.Lease[] }>({ method: "POST", path: path("topics", topic, "pull"), body, ...limit })).timers;
  }

  /**
   * Reports timers as done; twice is good. A result with the status 410 is of a lease that is over.
   */
  ack(receipts: string[], o: CallOptions = {}): Promise<t.ReceiptResult[]> {
    return this.#report("ack", { receipts }, o);
  }

  /**
   * Reports timers as failed: they come again after the delay, or the topic's backoff. The reason
   * shows as last_error. Where the answer to a nack was lost, its repetition finds the lease over:
   * 410.
   */
  nack(receipts: string[], o: CallOptions & { delay?: string; reason?: string } = {}): Promise<t.ReceiptResult[]> {
    return this.#report("nack", { receipts, delay: o.delay, reason: o.reason }, o);
  }

  /** Makes the leases end that long from now. */
  extend(receipts: string[], lease: string, o: CallOptions = {}): Promise<t.ReceiptResult[]> {
    return this.#report("extend", { receipts, lease }, o);
  }

  /**
   * Works on a pull topic: it pulls as many timers as it may handle at once, calls handle for each,
   * extends their leases meanwhile, and reports the end: an ack, or, of a failure, a nack with the
   * delay of a RetryAfter or else the backoff. While no node takes a report it is made again, until
   * the lease is over.
   *
   * The signal of a handler ends when its lease is over: somebody else may have the timer by then.
   * Timers come at least once; fence is higher for a later lease. When o.signal ends it pulls no
   * more, and returns when the handlers have, whose signals end after the grace. It throws, in the
   * same way, what refuses a pull for good.
   */
  work(topic: string, handle: (lease: t.Lease, signal: AbortSignal) => unknown, o: WorkOptions = {}): Promise<void> {
    return work(this, this.#calls, topic, handle, o);
  }

  /**
   * Yields what happens to timers, of all nodes, from now on until the signal ends. It is for
   * looking on: events while no node is connected are lost. A broken connection is an event of the
   * kind missed, with its error, and the next node is asked. It throws a refusal.
   */
  events(filter: t.EventFilter = {}, o: { signal?: AbortSignal } = {}): AsyncGenerator<t.Event> {
    return watch(this.#calls, filter, o.signal);
  }

  /** The cluster as a node sees it, in any state of the node. */
  cluster(o: CallOptions = {}): Promise<t.Cluster> {
    return this.#call({ method: "GET", path: path("cluster"), repeatable: true, ...limits(o) });
  }

  /** One shard as a node sees it. */
  shard(n: number, o: CallOptions = {}): Promise<t.ShardDetail> {
    return this.#call({ method: "GET", path: path("cluster", "shards", String(n)), repeatable: true, ...limits(o) });
  }

  /** What each node did in the last minute. */
  clusterStats(o: CallOptions = {}): Promise<t.ClusterStats> {
    return this.#call({ method: "GET", path: path("cluster", "stats"), repeatable: true, ...limits(o) });
  }

  /** How many timers come due from now on: a histogram. */
  due(q: t.DueQuery = {}, o: CallOptions = {}): Promise<t.Due> {
    return this.#call({ method: "GET", path: path("due"), query: q, repeatable: true, ...limits(o) });
  }

  /** Goes through the receivers that the nodes call, those that are unwell first. */
  destinations(filter: t.DestinationFilter = {}, o: CallOptions = {}): AsyncGenerator<t.Destination> {
    return this.#pages(path("destinations"), "destinations", filter, o);
  }

  /**
   * Changes how many replicas each shard should have. It returns when that is decided; making them
   * takes longer.
   */
  async setReplicas(replicas: number, o: CallOptions = {}): Promise<void> {
    await this.#call({ method: "PUT", path: path("cluster", "replicas"), body: { replicas }, repeatable: true, ...limits(o) });
  }

  /**
   * Lets the number of shards grow: to 2, 4, 8, … times as many as there are, at most 4,096. It
   * returns when that is decided; shards are then divided one after the other while they serve, as
   * cluster() shows. There is no way back to fewer.
   */
  async setShards(shards: number, o: CallOptions = {}): Promise<void> {
    await this.#call({ method: "POST", path: path("cluster", "shards"), body: { shards }, ...limits(o) });
  }

  /** About what setShards would need; it changes nothing. */
  previewShards(shards: number, o: CallOptions = {}): Promise<t.ShardsNeed> {
    return this.#call({ method: "POST", path: path("cluster", "shards"), query: { dry_run: true }, body: { shards }, repeatable: true, ...limits(o) });
  }

  /** Ends an upgrade: the release before cannot be started any more. Gives the feature level. */
  async finalizeUpgrade(o: CallOptions = {}): Promise<number> {
    return (await this.#call<{ feature_level: number }>({ method: "POST", path: path("cluster", "finalize"), repeatable: true, ...limits(o) })).feature_level;
  }

  /**
   * The time of a node's test clock, which stands still: see carillon-client/testing. A node without
   * one refuses with the code no_test_clock.
   */
  clock(o: CallOptions = {}): Promise<t.Clock> {
    return this.#call({ method: "GET", path: path("clock"), repeatable: true, ...limits(o) });
  }

  /**
   * Lets time pass by a test clock, such as "720h". All that becomes due on the way is called, in
   * order. It ends when nothing that was due by then is left but what waits for somebody (a pause, a
   * report or a pull, a breaker), or after 100,000 calls or a minute, which stopped says.
   */
  advance(by: string, o: CallOptions = {}): Promise<t.ClockMoved> {
    return this.#call({ method: "POST", path: path("clock"), body: { advance: by }, ...limits({ timeoutMs: moveLimit, ...o }) });
  }

  /** Is advance to a time. One that is past is refused with the code clock_past. */
  advanceTo(to: Date | string, o: CallOptions = {}): Promise<t.ClockMoved> {
    const time = typeof to === "string" ? to : to.toISOString();
    return this.#call({ method: "POST", path: path("clock"), body: { to: time }, repeatable: true, ...limits({ timeoutMs: moveLimit, ...o }) });
  }

  /** Has everything moved off a node, whose state is draining until that is done. */
  drainNode(name: string, o: CallOptions = {}): Promise<t.NodeChange> {
    return this.#call({ method: "POST", path: path("cluster", "nodes", name, "drain"), repeatable: true, ...limits(o) });
  }

  /** Takes a drain back, finished or not. */
  resumeNode(name: string, o: CallOptions = {}): Promise<t.NodeChange> {
    return this.#call({ method: "POST", path: path("cluster", "nodes", name, "resume"), repeatable: true, ...limits(o) });
  }

  /**
   * Takes a node out of the cluster for good: one that is drained or down, or any with force.
   * acceptLoss allows a shard to be left without a majority of its replicas; what only the lost
   * ones had is lost.
   */
  removeNode(name: string, o: CallOptions & { force?: boolean; acceptLoss?: boolean } = {}): Promise<t.NodeChange> {
    const query = { force: o.force || undefined, accept_loss: o.acceptLoss || undefined };
    return this.#call({ method: "DELETE", path: path("cluster", "nodes", name), query, ...limits(o) });
  }

  /**
   * A backup of the whole cluster, as it comes. It counts only when it is whole: carillon ctl
   * backup checks that.
   */
  async backup(o: { signal?: AbortSignal } = {}): Promise<ReadableStream<Uint8Array>> {
    return (await this.#calls.open({ method: "POST", path: path("backup"), ...limits(o) })).body;
  }

  #many<T>(path: string, body: unknown, o: ManyOptions): Promise<T> {
    return this.#call({ method: "POST", path, body, timeoutMs: Infinity, ...limits(o), ...(o.dryRun && dryRun) });
  }

  // It is repeated: a receipt is of one lease, and does nothing to a later one.
  async #report(what: string, body: unknown, o: CallOptions): Promise<t.ReceiptResult[]> {
    return (await this.#call<{ results: t.ReceiptResult[] }>({ method: "POST", path: path(what), body, repeatable: true, ...limits(o) })).results;
  }

  async *#pages<T>(path: string, member: string, filter: object, o: CallOptions): AsyncGenerator<T> {
    for (let cursor: string | undefined; ; ) {
      const query = { ...filter, limit: 1000, cursor };
      const page = await this.#call<Record<string, T[]> & { next_cursor?: string }>({ method: "GET", path, query, repeatable: true, ...limits(o) });
      yield* page[member] ?? [];
      cursor = page.next_cursor;
      if (!cursor) return;
    }
  }
}

const dryRun = { query: { dry_run: true }, repeatable: true };

const limits = (o: CallOptions): CallOptions => ({ ...(o.signal && { signal: o.signal }), ...(o.timeoutMs !== undefined && { timeoutMs: o.timeoutMs }) });

/** Whether the time is an instant, so that repeating the spec asks for the same. */
const absolute = (s: t.Spec) => s.at !== undefined || s.at_ms !== undefined || s.at_local !== undefined;

function addition(topic: string, spec: t.Spec, o: AddOptions): Request {
  const headers: Record<string, string> = o.idempotencyKey ? { "Idempotency-Key": `"${o.idempotencyKey}"` } : {};
  const timer = spec.id ?? (spec.key ? `{${spec.key}}` : ""); // an id whose shard is that of the timer
  return { method: "POST", path: path("topics", topic, "timers"), body: spec, headers, topic, timer, ...limits(o) };
}

function ofTimer(method: Request["method"], topic: string, id: string, o: PutOptions, ...more: string[]): Request {
  const headers: Record<string, string> = {};
  if (o.ifMatch) headers["If-Match"] = `"${o.ifMatch}"`;
  if (o.createOnly) headers["If-None-Match"] = "*";
  return { method, path: path("topics", topic, "timers", id, ...more), headers, topic, timer: id, ...limits(o) };
}

function ofTopic(method: Request["method"], topic: string, o: PolicyOptions): Request {
  const headers: Record<string, string> = o.ifMatch ? { "If-Match": `"${o.ifMatch}"` } : {};
  return { method, path: path("topics", topic), query: { force: o.force || undefined, dry_run: o.dryRun || undefined }, headers, ...limits(o) };
}
