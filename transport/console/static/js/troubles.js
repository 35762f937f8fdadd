// What is wrong in a cluster, one line each.
import { html, many, num, span } from "./lib.js";
import { Badge, waits } from "./parts.js";
import { failing, health, originOf } from "./receivers.js";

const mostOfAKind = 4;

// backups is how the cluster's schedule of backups stands, null where there is none. One node makes
// them; the others know the schedule alone.
export function backups(stats) {
  const all = ((stats && stats.nodes) || []).map((n) => n.backup).filter(Boolean);
  return all.length ? { every: all[0].every, made: Math.max(...all.map((b) => b.last_success_ms || 0)), overdue: Math.max(...all.map((b) => b.overdue_ms)), error: all.map((b) => b.error).find(Boolean) } : null;
}

// worstOf is the worst of the troubles, and of what the node says about its cluster.
export const worstOf = (cluster, list) => (!cluster.healthy || !cluster.cluster_id || list.some(([kind]) => kind === "bad") ? "bad" : list.length ? "warn" : "ok");
export const Worst = ({ kind }) => html`<${Badge} kind=${kind}>${{ ok: "healthy", warn: "warning", bad: "problem" }[kind]}<//>`;

// troubles are the reasons why a cluster is not healthy, one line each, the worst first. Each: kind,
// text, what to do, where. Many of one kind become one line.
export function troubles(cluster, topics, receivers, stats) {
  const list = [], bad = "bad", warn = "warn";
  const each = (found, one, all) => { if (found.length > mostOfAKind) list.push(all(found)); else list.push(...found.map(one)); };
  const node = (kind, text, action = "Open cluster") => list.push([kind, text, action, "#/cluster"]);
  for (const n of (cluster && cluster.nodes) || []) {
    if (n.state === "down") node(bad, `Node ${n.name} is down.`, "Restart or replace it");
    else if (n.state === "suspect") node(warn, `Node ${n.name} does not answer.`);
    else if (n.state === "draining") node(warn, `Node ${n.name} is draining.`);
    else if (n.state === "drained") node(warn, `Node ${n.name} is drained and holds no shards.`, "Resume or remove it");
    if (n.unfit) node(warn, `Node ${n.name} is unfit to lead: ${n.unfit}.`);
    if (n.low_disk) node(bad, `The disk of node ${n.name} is almost full: shards with a replica on it refuse adds.`, "Make room on it");
    if (Math.abs(n.clock_offset_ms || 0) > 500) node(warn, `The clock of node ${n.name} is off by ${span(n.clock_offset_ms)}.`, "Check its time service");
  }
  const shards = (cluster && cluster.shards) || [];
  const count = (state) => shards.filter((s) => s.state === state).length;
  if (count("no_quorum")) node(bad, `${count("no_quorum")} of ${shards.length} shards have no majority. Their timers cannot run or change.`, "Start the missing nodes");
  if (count("degraded")) node(warn, `${count("degraded")} of ${shards.length} shards lack a replica or a leader.`);
  if (count("moving")) node(warn, `${count("moving")} of ${shards.length} shards are moving.`);
  const full = shards.filter((s) => s.full).length;
  if (full) node(bad, `${many(full, "shard is full and refuses", "shards are full and refuse")} adds.`, "Add shards");
  const backup = backups(stats), hour = 3600000;
  if (backup && (backup.error || backup.overdue > hour)) node(backup.overdue > hour ? bad : warn, `A backup is overdue by ${span(backup.overdue)}${backup.error ? `: ${backup.error}` : ""}.`);

  const waiting = (n) => (n ? ` ${many(n, "timer waits", "timers wait")} for it.` : "");
  const broken = ((receivers && receivers.destinations) || []).filter((r) => r.state !== "closed" && health(r)[0]);
  each(broken, (r) => [health(r)[0], `Receiver ${r.destination} is ${health(r)[1]}.${waiting(r.waiting)}${r.last_error ? ` Last error: ${r.last_error}.` : ""}`, "Open receivers", "#/receivers"],
    (all) => [health(all[0])[0], `${num(all.length)} receivers are unhealthy. ${many(all.reduce((a, r) => a + r.waiting, 0), "timer waits", "timers wait")} for them.`, "Open receivers", "#/receivers"]);

  const known = (topics && topics.topics) || [];
  const retrying = (r) => known.filter((t) => t.policy && t.policy.callback && originOf(t.policy.callback.url) === r.destination).reduce((a, t) => a + (((t.counts || {}).waiting || {}).backoff || 0), 0);
  const fail = ((receivers && receivers.destinations) || []).filter((r) => r.state === "closed" && failing(r));
  each(fail, (r) => [warn, `Receiver ${r.destination}: the last ${num(r.failures)} calls failed${r.last_error ? ` (${r.last_error})` : ""}.${retrying(r) ? ` ${many(retrying(r), "timer retries", "timers retry")}.` : ""}`, "Open receivers", "#/receivers"],
    (all) => [warn, `Every call to ${num(all.length)} receivers has failed for a while.`, "Open receivers", "#/receivers"]);

  const of = (t) => `#/topics/${encodeURIComponent(t.topic)}`;
  each(known.filter((t) => t.paused), (t) => [warn, `Topic ${t.topic} is paused.${t.counts && t.counts.ready ? ` ${many(t.counts.ready, "timer waits", "timers wait")}.` : ""}`, "Resume it", of(t)],
    (all) => [warn, `${num(all.length)} topics are paused.`, "Open topics", "#/topics"]);
  // What waits for a receiver alone is in the receiver's line already.
  const explained = (t) => broken.length + fail.length > 0 && Object.keys(t.counts.waiting || { none: 0 }).every((cause) => cause === "breaker" || cause === "backoff");
  each(known.filter((t) => !t.paused && t.oldest_overdue_ms > 60000 && t.counts && !explained(t)),
    (t) => [warn, `Topic ${t.topic}: ${many(t.counts.ready, "timer waits", "timers wait")}${t.counts.waiting ? ` for ${Object.keys(t.counts.waiting).map((cause) => waits[cause] || cause).join(", ")}` : ""}. The oldest has waited for ${span(t.oldest_overdue_ms)}.`, "Open topic", of(t)],
    (all) => [warn, `${num(all.length)} topics have waiting timers. The oldest has waited for ${span(Math.max(...all.map((t) => t.oldest_overdue_ms)))}.`, "Open topics", "#/topics"]);
  const dead = known.filter((t) => t.counts && t.counts.dead);
  if (dead.length) list.push([warn, `${many(dead.reduce((a, t) => a + t.counts.dead, 0), "dead letter")} in ${dead.length > 3 ? many(dead.length, "topic") : dead.map((t) => t.topic).join(", ")}.`, "Redrive or purge", dead.length > 1 ? "#/dead" : `#/dead?topic=${encodeURIComponent(dead[0].topic)}`]);
  return list.sort((a, b) => (a[0] === bad ? 0 : 1) - (b[0] === bad ? 0 : 1));
}
