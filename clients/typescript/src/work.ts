import { sleep, type Calls } from "./calls.js";
import type { Client } from "./client.js";
import { Problem, refusedForGood } from "./errors.js";
import { RetryAfter } from "./receiver.js";
import type { Lease, ReceiptResult } from "./types.js";

export interface WorkOptions {
  /** Timers at once, 1 to 1,000; 1. */
  concurrency?: number;
  /** Of a timer; extended as long as its handler runs; 30 s. */
  leaseMs?: number;
  /** Of one long poll, up to a minute; 20 s. */
  waitMs?: number;
  /** That handlers have when the signal has ended; 30 s. */
  graceMs?: number;
  /** Ends the work. */
  signal?: AbortSignal;
  /**
   * Gets errors that do not end the work: a pull that is tried again, and a report that did not
   * arrive or came too late.
   */
  onError?: (err: unknown) => void;
}

const maxConcurrency = 1000; // receipts in one extension
const maxReason = 1024; // bytes

/** A lease whose handler runs. */
interface Hold {
  until: number; // by this process's clock: the lease is good until then without another word
  lost: AbortController;
}

export async function work(client: Client, calls: Calls, topic: string, handle: (lease: Lease, signal: AbortSignal) => unknown, o: WorkOptions): Promise<void> {
  const { concurrency = 1, leaseMs = 30_000, waitMs = 20_000, graceMs = 30_000, signal, onError = () => {} } = o;
  if (!(concurrency >= 1 && concurrency <= maxConcurrency)) throw new RangeError(`carillon: a concurrency of ${concurrency} is not 1 to ${maxConcurrency}`);
  const held = new Map<string, Hold>(); // by receipt
  const running = new Set<Promise<void>>(); // at most concurrency
  let wake = () => {}; // a handler has ended, or the signal
  const graceOver = new AbortController();
  const stopped = () => wake();
  signal?.addEventListener("abort", stopped);

  // Reports until that succeeds, and once when the grace is over. When the lease is over it is of no
  // use. A node that is silent leaves time for another.
  const report = async (receipt: string, failure: unknown) => {
    const until = performance.now() + leaseMs;
    for (let failed = 0; ; failed++) {
      const limit = { timeoutMs: Math.min(until - performance.now(), leaseMs / 3) };
      try {
        return failure === undefined ? await client.ack([receipt], limit) : await client.nack([receipt], { ...limit, ...nackOf(failure) });
      } catch (err) {
        const pause = calls.pause(err, failed);
        if (refusedForGood(err) || graceOver.signal.aborted || performance.now() + pause >= until) throw err;
        await sleep(pause, graceOver.signal);
      }
    }
  };

  const run = async (lease: Lease) => {
    const hold = { until: performance.now() + leaseMs, lost: new AbortController() };
    held.set(lease.receipt, hold);
    let failure: unknown;
    try {
      await handle(lease, hold.lost.signal);
    } catch (err) {
      failure = err ?? new Error("failed");
    }
    held.delete(lease.receipt);
    try {
      if ((await report(lease.receipt, failure))[0]?.status !== 200) throw leaseIsOver();
    } catch (err) {
      onError(err);
    }
  };

  let extending: Promise<void> | undefined; // at most one call at a time
  const extender = setInterval(() => {
    extending ??= extend(client, held, leaseMs, onError).finally(() => (extending = undefined));
  }, leaseMs / 3);
  try {
    for (let failed = 0; !signal?.aborted; ) {
      if (running.size >= concurrency) {
        await new Promise<void>((done) => (wake = done));
        continue;
      }
      try {
        const limit = { timeoutMs: waitMs + 60_000, ...(signal && { signal }) };
        const leases = await client.pull(topic, { max: concurrency - running.size, wait: `${waitMs}ms`, lease: `${leaseMs}ms`, ...limit });
        for (const lease of leases) {
          const one = run(lease).finally(() => {
            running.delete(one);
            wake();
          });
          running.add(one);
        }
        failed = 0;
      } catch (err) {
        if (signal?.aborted) return;
        if (refusedForGood(err)) throw err;
        onError(err);
        await sleep(calls.pause(err, failed++), signal);
      }
    }
  } finally {
    const reason = new Error("carillon: the worker has been stopped");
    const grace = setTimeout(() => {
      graceOver.abort();
      held.forEach((hold) => hold.lost.abort(reason));
    }, graceMs);
    await Promise.all(running);
    clearTimeout(grace);
    clearInterval(extender);
    signal?.removeEventListener("abort", stopped);
    await extending;
  }
}

/** Holds the leases whose handlers run, all in one call. It gives up those that are over. */
async function extend(client: Client, held: Map<string, Hold>, leaseMs: number, onError: (err: unknown) => void): Promise<void> {
  const asked = performance.now();
  const receipts: string[] = [];
  for (const [receipt, hold] of held) {
    if (asked < hold.until) receipts.push(receipt);
    else hold.lost.abort(leaseIsOver());
  }
  if (receipts.length === 0) return;
  let results: ReceiptResult[] = [];
  try {
    results = await client.extend(receipts, `${leaseMs}ms`, { timeoutMs: leaseMs / 3 });
  } catch (err) {
    onError(err);
  }
  for (const result of results) {
    const hold = held.get(result.receipt);
    if (!hold) continue; // its handler has ended meanwhile
    if (result.status === 200) hold.until = asked + leaseMs;
    else {
      hold.until = asked; // not asked for again
      hold.lost.abort(leaseIsOver());
    }
  }
}

const leaseIsOver = () => new Problem(410, { code: "over", detail: "the lease is over" });

function nackOf(failure: unknown): { delay?: string; reason: string } {
  const text = String((failure as Error | undefined)?.message || failure);
  const reason = new TextDecoder().decode(Buffer.from(text).subarray(0, maxReason)).replace(/\ufffd+$/, "");
  return failure instanceof RetryAfter ? { delay: `${Math.max(Math.round(failure.delayMs), 0)}ms`, reason } : { reason };
}
