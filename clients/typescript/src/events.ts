import { path, sleep, type Calls } from "./calls.js";
import { refusedForGood } from "./errors.js";
import type { Event, EventFilter } from "./types.js";

const silenceMs = 45_000; // a node sends something every 15 s
const maxEventChars = 1 << 20;

/** Yields events, of one node after the other. */
export async function* watch(calls: Calls, filter: EventFilter, signal?: AbortSignal): AsyncGenerator<Event> {
  for (let failed = 0; !signal?.aborted; failed++) {
    const own = new AbortController();
    const stop = () => own.abort();
    signal?.addEventListener("abort", stop);
    const watchdog = setTimeout(stop, silenceMs);
    let failure: unknown = new Error("the stream of events has ended");
    try {
      const { body, passOver } = await calls.open({ method: "GET", path: path("events"), query: filter, ...(signal && { signal }) }, own.signal);
      try {
        let kind = "";
        for await (const line of lines(body)) {
          watchdog.refresh();
          const [, name, value = ""] = /^(event|data): ?(.*)$/s.exec(line) ?? [];
          if (name === "event") kind = value;
          if (name === "data") {
            failed = 0;
            yield { ...(JSON.parse(value) as Event), kind };
          }
        }
      } finally {
        passOver();
      }
    } catch (err) {
      failure = err;
    } finally {
      clearTimeout(watchdog);
      signal?.removeEventListener("abort", stop);
      own.abort(); // closes the connection
    }
    if (signal?.aborted) return;
    if (refusedForGood(failure)) throw failure;
    yield { kind: "missed", at: new Date().toISOString(), at_ms: Date.now(), error: String((failure as Error).message) };
    await sleep(calls.pause(failure, failed), signal);
  }
}

async function* lines(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of body) {
    const parts = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = parts.pop() ?? "";
    if (rest.length > maxEventChars) throw new Error("an event is too long");
    yield* parts;
  }
}
