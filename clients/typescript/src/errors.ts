import type { components } from "./openapi.js";

/** The codes of refusals. They are stable; a newer node may have others. */
export type Code =
  | "bad_request" | "bad_json" | "unknown_field" | "bad_time" | "bad_name" | "bad_header" | "bad_url"
  | "unauthorized" | "forbidden"
  | "not_found" | "unknown_topic" | "unknown_timer" | "no_test_clock"
  | "method_not_allowed" | "misdirected"
  | "exists" | "in_flight" | "not_empty" | "in_use" | "wrong_delivery" | "not_drained" | "busy" | "feature_level" | "clock_past"
  | "over" | "version_mismatch" | "too_large" | "unsupported_media_type"
  | "no_callback" | "callback_refused" | "beyond_horizon" | "not_json" | "bad_policy" | "unknown_outcome_topic" | "bad_shards"
  | "quota" | "unavailable" | "no_leader" | "overloaded" | "low_disk" | "internal";

type Document = components["schemas"]["Problem"];

/** A refusal (RFC 9457). */
export class Problem extends Error {
  override readonly name = "Problem";
  readonly status: number;
  /** Empty where the answer was not a node's. */
  readonly code: Code | (string & {});
  readonly title: string;
  readonly detail: string;
  readonly retryable: boolean;
  /** With over: how the timer ended. */
  readonly outcome: Document["outcome"];
  /**
   * With exists, in_flight and version_mismatch: the timer that is there, where the node knew it.
   */
  readonly existing: Document["existing"];
  /** 0: the answer has no Retry-After. */
  readonly retryAfterMs: number;

  constructor(status: number, document: Partial<Document>, retryAfterMs = 0) {
    const outcome = document.outcome ? `: ${document.outcome.replaceAll("_", " ")}` : "";
    super(`carillon: ${document.detail || document.title} (${`${status} ${document.code ?? ""}`.trim()})${outcome}`);
    this.status = status;
    this.code = document.code ?? "";
    this.title = document.title ?? "";
    this.detail = document.detail ?? "";
    this.retryable = document.retryable ?? false;
    this.outcome = document.outcome;
    this.existing = document.existing;
    this.retryAfterMs = retryAfterMs;
  }
}

/**
 * A call without a whole answer: a change may or may not have been made. The cause is the failure.
 */
export class Unanswered extends Error {
  override readonly name = "Unanswered";
}

/**
 * Makes a Problem of any answer but a 2xx. One without a problem document came from something
 * between us and the node.
 */
export function readProblem(response: Response, text: string): Problem {
  const seconds = Number(response.headers.get("retry-after") ?? "");
  const retryAfterMs = Number.isSafeInteger(seconds) && seconds > 0 ? seconds * 1000 : 0;
  let document: Partial<Document> = {};
  try {
    document = JSON.parse(text) as Partial<Document>;
  } catch {
    // It is no JSON.
  }
  if (typeof document?.code !== "string") {
    const to = response.headers.get("location");
    const what = to && response.status < 400 ? `to ${to.slice(0, 200)}, which is not followed: no node redirects` : `and no explanation that a node gives: ${text.slice(0, 200)}`;
    document = { detail: `${response.status} ${response.statusText}, ${what}` };
  }
  return new Problem(response.status, document, retryAfterMs);
}

/** Whether asking again does not help. */
export function refusedForGood(err: unknown): boolean {
  return err instanceof Problem && err.status >= 300 && err.status < 500 && err.status !== 429 && err.status !== 408;
}
