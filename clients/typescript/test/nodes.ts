/** Real nodes and nodes that only answer as they are asked to, for the tests. */
import { spawn, type ChildProcess } from "node:child_process";
import { createServer as createHTTP, type IncomingHttpHeaders, type Server } from "node:http";
import { createServer, type AddressInfo } from "node:net";
import { after } from "node:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = new URL("../../../../", import.meta.url); // of the repository
const binary = process.env["CARILLON_BINARY"] ?? fileURLToPath(new URL("bin/carillon", root));

let port = 20_000 + ((process.pid * 11) % 11_000);

/** A loopback address whose port is free. It lies below the system's ephemeral ports. */
export async function freeAddress(): Promise<string> {
  for (;;) {
    const mine = (port = port >= 31_900 ? 20_000 : port + 1);
    const server = createServer();
    const free = await new Promise<boolean>((done) => {
      server.once("error", () => done(false));
      server.listen(mine, "127.0.0.1", () => server.close(() => done(true)));
    });
    if (free) return `127.0.0.1:${mine}`;
  }
}

export interface Node {
  url: string;
  kill(): Promise<void>;
}

// A test that failed may have left some, and no process with children comes to its end.
const started = new Set<ChildProcess>();
const killAll = () => started.forEach((one) => one.kill("SIGKILL"));
after(killAll);
process.once("exit", killAll);

/** Starts a node and waits until it is ready. */
export async function serve(...flags: string[]): Promise<Node> {
  const dir = mkdtempSync(join(tmpdir(), "carillon-node-"));
  const address = await freeAddress();
  const child = spawn(binary, ["serve", "--data", join(dir, "data"), "--http", address, ...flags], { stdio: ["ignore", "pipe", "pipe"] });
  return { url: `http://${address}`, kill: await ready(child, dir) };
}

async function ready(child: ChildProcess, dir: string): Promise<() => Promise<void>> {
  started.add(child);
  let log = "";
  child.stderr?.on("data", (text) => (log += text));
  const exited = new Promise<void>((done) => child.once("exit", () => done()));
  const line = new Promise<boolean>((done) => child.stdout?.once("data", () => done(true)));
  if (!(await Promise.race([line, exited.then(() => false)]))) throw new Error(`the node did not start: ${log}`);
  child.stdout?.resume();
  return async () => {
    child.kill("SIGKILL");
    await exited;
    rmSync(dir, { recursive: true, force: true });
  };
}

/** Starts a cluster of three nodes and waits until each of its shards has a leader. */
export async function cluster(): Promise<Node[]> {
  const key = join(mkdtempSync(join(tmpdir(), "carillon-key-")), "key");
  writeFileSync(key, "5a".repeat(32) + "\n", { mode: 0o600 });
  const gossip = [await freeAddress(), await freeAddress(), await freeAddress()];
  const nodes = await Promise.all(
    gossip.map(async (address, i) => {
      return serve("--name", `n${i}`, "--peer", await freeAddress(), "--gossip", address, "--join", gossip.join(), "--gossip-key", key, "--shards", "4", "--bootstrap-expect", "3");
    }),
  );
  await eventually(async () => {
    for (const node of nodes) {
      const view = (await (await fetch(`${node.url}/v1/cluster`)).json()) as { healthy: boolean; nodes: unknown[] };
      if (!view.healthy || view.nodes.length < 3) return false;
    }
    return true;
  });
  return nodes;
}

/** Waits until something holds. */
export async function eventually(holds: () => Promise<boolean>): Promise<void> {
  for (let tries = 0; !(await holds()); tries++) {
    if (tries > 600) throw new Error("it did not come true in a minute");
    await new Promise((done) => setTimeout(done, 100));
  }
}

export interface Reply {
  status?: number;
  body?: unknown;
  headers?: Record<string, string>;
  /** Closes the connection instead of an answer. */
  cut?: boolean;
}

/** A node that gives one reply after the other; the last one stays. */
export class FakeNode {
  readonly seen: { method: string; url: string; headers: IncomingHttpHeaders; body: string }[] = [];
  readonly #server: Server;

  private constructor(public replies: Reply[]) {
    this.#server = createHTTP((req, res) => {
      let body = "";
      req.on("data", (chunk) => (body += chunk));
      req.on("end", () => {
        this.seen.push({ method: req.method ?? "", url: req.url ?? "", headers: req.headers, body });
        const reply = (this.replies.length > 1 ? this.replies.shift() : this.replies[0]) ?? {};
        if (reply.cut) return req.socket.destroy();
        res.writeHead(reply.status ?? 200, { "Content-Type": "application/json", ...reply.headers });
        return res.end(typeof reply.body === "string" ? reply.body : JSON.stringify(reply.body ?? {}));
      });
    });
  }

  static async start(...replies: Reply[]): Promise<FakeNode> {
    const node = new FakeNode(replies);
    await new Promise<void>((done) => node.#server.listen(0, "127.0.0.1", done));
    return node;
  }

  get host(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get url(): string {
    return `http://${this.host}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((done) => this.#server.close(done));
  }
}

/** A problem as a node answers it. */
export const problem = (status: number, code: string, headers: Record<string, string> = {}): Reply => ({
  status, headers, body: { type: "about:blank", title: code, status, detail: `it is ${code}`, code, retryable: status === 503 },
});
