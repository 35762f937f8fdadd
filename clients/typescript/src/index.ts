/// <reference types="node" preserve="true" />
export { Client, type AddOptions, type ManyOptions, type PolicyOptions, type PutOptions, type TimerCondition, type TopicCondition } from "./client.js";
export { path, type CallOptions, type Options, type Request } from "./calls.js";
export { Problem, Unanswered, type Code } from "./errors.js";
export { shardOf } from "./leaders.js";
export {
  Delivery, Fences, Receiver, Refusal, RetryAfter, Stop, newSecret, newSigningKey,
  type CloudEvent, type FenceStore, type Handler, type ManyHandler, type ReceiverOptions,
} from "./receiver.js";
export type * from "./types.js";
export type { components, operations, paths } from "./openapi.js";
export type { WorkOptions } from "./work.js";
