/** The header that names the node that leads a timer's shard, as "host:port";shard=3;shards=16. */
export const leaderHeader = "carillon-leader";

const maxShards = 65535;

/**
 * What answers have said of who leads which shard. It knows only the nodes that it was made with:
 * no answer makes the client send a request, or a token, anywhere else. Memory is O(shards).
 */
export class Leaders {
  readonly #nodes = new Map<string, number>();
  #shards = new Int32Array(0); // by shard - 1: 1 + the index of the node, 0: not known

  /** Takes the nodes' addresses (host:port), in the order of their indexes. */
  constructor(addresses: string[]) {
    addresses.forEach((address, index) => this.#nodes.set(address, index));
  }

  /** The index of the node that leads a timer's shard. An empty id is that of no timer. */
  node(topic: string, id: string): number | undefined {
    if (this.#shards.length === 0 || id === "") return undefined;
    const at = this.#shards[shardOf(topic, id, this.#shards.length) - 1] ?? 0;
    return at > 0 ? at - 1 : undefined;
  }

  /** Takes over what an answer's header says. A text of any other form changes nothing. */
  learn(header: string): void {
    const [, address = "", first, second] = /^"([^"]+)";shard=(\d{1,5});shards=(\d{1,5})$/.exec(header) ?? [];
    const shard = Number(first);
    const shards = Number(second);
    if (!(shard >= 1 && shard <= shards && shards <= maxShards)) return;
    if (this.#shards.length !== shards) this.#shards = new Int32Array(shards);
    this.#shards[shard - 1] = (this.#nodes.get(address) ?? -1) + 1;
  }

  /** Makes the leader of a timer's shard unknown, after a request to it that had no answer. */
  forget(topic: string, id: string): void {
    if (this.#shards.length > 0 && id !== "") this.#shards[shardOf(topic, id, this.#shards.length) - 1] = 0;
  }
}

/**
 * The shard of a timer, 1 to shards: 1 + xxh64(topic, a zero byte, key or id) mod shards. An id
 * that the cluster made names its shard itself.
 */
export function shardOf(topic: string, id: string, shards: number): number {
  const made = /^s([0-9a-f]{4})-[0-9a-v]{20}$/.exec(id)?.[1];
  if (made && Number.parseInt(made, 16) > 0) return 1 + ((Number.parseInt(made, 16) - 1) % shards);
  const key = /^\{([^}]+)\}/.exec(id)?.[1] ?? id;
  return 1 + Number(xxh64(Buffer.from(`${topic}\0${key}`)) % BigInt(shards));
}

const prime1 = 0x9e3779b185ebca87n;
const prime2 = 0xc2b2ae3d27d4eb4fn;
const prime3 = 0x165667b19e3779f9n;
const prime4 = 0x85ebca77c2b2ae63n;
const prime5 = 0x27d4eb2f165667c5n;

const wrap = (n: bigint) => BigInt.asUintN(64, n);
const rotate = (n: bigint, by: bigint) => wrap(n << by) | (n >> (64n - by));
const round = (lane: bigint, input: bigint) => wrap(rotate(wrap(lane + input * prime2), 31n) * prime1);

/** The 64-bit xxHash with seed 0 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md). */
export function xxh64(b: Buffer): bigint {
  let at = 0;
  let h = prime5;
  if (b.length >= 32) {
    const lanes: [bigint, bigint, bigint, bigint] = [wrap(prime1 + prime2), prime2, 0n, wrap(-prime1)];
    for (; at + 32 <= b.length; at += 32) {
      for (const i of [0, 1, 2, 3] as const) lanes[i] = round(lanes[i], b.readBigUInt64LE(at + 8 * i));
    }
    h = wrap(rotate(lanes[0], 1n) + rotate(lanes[1], 7n) + rotate(lanes[2], 12n) + rotate(lanes[3], 18n));
    for (const lane of lanes) h = wrap((h ^ round(0n, lane)) * prime1 + prime4);
  }
  h = wrap(h + BigInt(b.length));
  for (; at + 8 <= b.length; at += 8) h = wrap(rotate(h ^ round(0n, b.readBigUInt64LE(at)), 27n) * prime1 + prime4);
  if (at + 4 <= b.length) {
    h = wrap(rotate(h ^ wrap(BigInt(b.readUInt32LE(at)) * prime1), 23n) * prime2 + prime3);
    at += 4;
  }
  for (; at < b.length; at++) h = wrap(rotate(h ^ wrap(BigInt(b.readUInt8(at)) * prime5), 11n) * prime1);
  h = wrap((h ^ (h >> 33n)) * prime2);
  h = wrap((h ^ (h >> 29n)) * prime3);
  return h ^ (h >> 32n);
}
