/** The types of the API by short names. All of them are made from docs/openapi.yaml. */
import type { components, operations } from "./openapi.js";

type Schemas = components["schemas"];

/** The query parameters of an operation, without those of its pages. */
type Query<O extends keyof operations> = Omit<NonNullable<operations[O]["parameters"]["query"]>, "limit" | "cursor" | "dry_run">;

/** Fields that may be null, which resets them to their default; those of objects one by one. */
type Resettable<T> = { [K in keyof T]?: (NonNullable<T[K]> extends unknown[] ? T[K] : T[K] extends object | undefined ? Resettable<T[K]> : T[K]) | null };

export type Timer = Schemas["Timer"];
/** A timer as a dry run shows it: it has no uid, and no id where the cluster would make one. */
export type TimerToBe = Omit<Timer, "id" | "uid"> & { id?: string };
export type Callback = Schemas["Callback"];
export type Retry = Schemas["Retry"];
export type Repeat = Schemas["Repeat"];
export type Attempt = Schemas["Attempt"];
/** The topic in which the end of a timer makes another timer, its outcome. */
export type OutcomeTopic = Schemas["OutcomeTopic"];
/** The payload of an outcome. */
export type OutcomePayload = Schemas["OutcomePayload"];
/**
 * A timer as it is added or put: exactly one time, or repeat.cron; the rest falls back to the
 * topic.
 */
export type Spec = Schemas["Add"];
/** Any subset of a timer's fields. */
export type Patch = Schemas["When"] & Resettable<Schemas["Fields"]>;
/** A timer that was pulled: its consumer has it until lease_until. */
export type Lease = Schemas["PulledList"]["timers"][number];
export type ReceiptResult = Schemas["ClaimResults"]["results"][number];
export type Entry = Schemas["HistoryList"]["entries"][number];

/** One operation of a batch. */
export type Op =
  | ({ op: "add" } & Spec)
  | ({ op: "put"; id: string; if_match?: number } & Spec)
  | ({ op: "patch"; id: string; if_match?: number } & Patch)
  | { op: "cancel" | "fire"; id: string; if_match?: number };
export type OpResult = Schemas["OpResult"];

export type Topic = Schemas["Topic"];
export type Policy = Schemas["Policy"];
export type PolicyPatch = Resettable<Policy>;
export type Secrets = Schemas["Secrets"];
export type PublicKeys = Schemas["PublicKeys"];

/** A filter of timers, or all. */
export type Selector = Schemas["BulkCancel"];
export type Reschedule = Schemas["BulkReschedule"];
export type Purge = Schemas["Purge"];
export type Redrive = Schemas["Redrive"];
export type Changed = Schemas["Changed"];
export type Swept = Schemas["Swept"];

export type Cluster = Schemas["Cluster"];
export type ShardDetail = Schemas["ShardDetail"];
export type NodeChange = Schemas["NodeChange"];
export type ClusterStats = Schemas["ClusterStats"];
export type Destination = Schemas["Destination"];
export type Due = Schemas["Due"];
export type Clock = Schemas["Clock"];
export type ClockMoved = Schemas["ClockMoved"];
export type ShardsNeed = Schemas["ShardsNeed"];

export type TimerFilter = Query<"listTimers">;
export type AllTimersFilter = Query<"listAllTimers">;
export type TopicFilter = Query<"listTopics">;
export type DeadFilter = Query<"listDead">;
export type HistoryFilter = Query<"listHistory">;
export type DestinationFilter = Query<"listDestinations">;
export type EventFilter = Query<"watchEvents">;
export type DueQuery = Query<"readDue">;

/** Something that happened to a timer, or, of breaker, node and shards, to these. */
export interface Event {
  /** fired, dead, added, changed, cancelled, breaker, node, shards; or missed: events were left out. */
  kind: string;
  node?: string;
  at: string;
  at_ms: number;
  topic?: string;
  id?: string;
  labels?: string[];
  due?: string;
  due_ms?: number;
  /** Of fired, as result, status, late_ms and next_attempt. */
  attempt?: number;
  result?: "success" | "retry" | "dead" | "cancelled";
  status?: number;
  late_ms?: number;
  next_attempt?: string;
  next_attempt_ms?: number;
  error?: string;
  reason?: string;
  /** Of missed: how many, where that is known. */
  missed?: number;
  destination?: string;
  /** Of breaker, node and shards; of the latter: begins, divided, done. */
  state?: string;
  /** Of shards: how many there were, how many there will be, and how many new ones are made. */
  from?: number;
  to?: number;
  done?: number;
  /** Of shards that are divided: the new one. */
  shard?: number;
}
