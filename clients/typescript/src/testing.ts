/// <reference types="node" preserve="true" />
/**
 * Starts a node for a test, with a clock that stands still until the test moves it: a year passes in
 * less than a second, and all that is due in it is called, in order.
 */
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "./client.js";
import type { ClockMoved } from "./types.js";

export interface StartOptions {
  /** When the clock begins; now. */
  at?: Date | string;
  /** More flags of carillon serve. */
  flags?: string[];
  /** The program: that of CARILLON_BIN, or else carillon on the PATH. */
  binary?: string;
}

/** A node that runs until stop. */
export class TestNode {
  /** Makes calls to the node. */
  readonly client: Client;

  constructor(readonly url: string, readonly stop: () => Promise<void>) {
    this.client = new Client(url);
  }

  /** The time of its clock. */
  async now(): Promise<Date> {
    return new Date((await this.client.clock()).now_ms);
  }

  /**
   * Lets time pass, such as "720h": all that becomes due is called, in order. It ends when nothing is
   * left of it but what waits for somebody.
   */
  async advance(by: string): Promise<ClockMoved> {
    const moved = await this.client.advance(by);
    if (moved.stopped) throw new Error(`the clock stopped at ${moved.now}, after ${moved.calls} calls: advance in smaller steps, or use to`);
    return moved;
  }

  /**
   * Is advance to a time. It fails if that does not end, because each call adds a timer that is due
   * at once: then the clock stops twice at one time.
   */
  async to(time: Date | string): Promise<ClockMoved> {
    for (let calls = 0, last = ""; ; ) {
      const moved = await this.client.advanceTo(time);
      calls += moved.calls;
      if (!moved.stopped) return { ...moved, calls };
      if (moved.now === last) throw new Error(`the clock stands still at ${last}, after ${calls} calls: more and more is due at that time`);
      last = moved.now;
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

/** Starts a node in a directory of its own, and waits until it is ready. */
export async function start(o: StartOptions = {}): Promise<TestNode> {
  const binary = o.binary ?? process.env["CARILLON_BIN"] ?? "carillon";
  const at = o.at === undefined ? "now" : typeof o.at === "string" ? o.at : o.at.toISOString();
  const dir = await mkdtemp(join(tmpdir(), "carillon-test-"));
  const flags = ["serve", "--data", join(dir, "data"), "--http", "127.0.0.1:0", "--test-clock", at, ...(o.flags ?? [])];
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("CARILLON_")));
  const child = spawn(binary, flags, { env, stdio: ["ignore", "pipe", "pipe"] });
  const atExit = () => child.kill("SIGKILL");
  process.once("exit", atExit);
  let log = "";
  child.stderr.on("data", (text) => (log += text));
  const ended = new Promise<Error>((done) => {
    child.once("error", () => done(new Error(`${binary} cannot be run: put carillon on the PATH, or name the binary in CARILLON_BIN`)));
    child.once("exit", () => done(new Error(`the node did not start: ${log}`)));
  });
  const ready = new Promise<string>((done) => {
    let out = "";
    child.stdout.on("data", (text) => {
      const url = /ready on ([^,]+),/.exec((out += text))?.[1];
      if (url) done(url);
    });
  });
  const first = await Promise.race([ready, ended]);
  if (first instanceof Error) {
    await rm(dir, { recursive: true, force: true });
    throw first;
  }
  return new TestNode(first, async () => {
    child.kill("SIGINT");
    await ended;
    process.removeListener("exit", atExit);
    await rm(dir, { recursive: true, force: true });
  });
}
