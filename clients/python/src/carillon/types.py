"""The types of the API, made from docs/openapi.yaml by clients/python/generate. Do not edit."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Dict, List, Literal, Optional, TypedDict, Union

TimeOrText = Union[str, int, datetime, None]
"""A time in a filter: RFC 3339, Unix milliseconds, or a datetime with a zone."""

Time = str


class ProblemExisting(TypedDict):
    version: int
    state: Literal["scheduled", "leased", "done", "dead", "cancelled"]
    due: Time
    due_ms: int


class _Problem(TypedDict):
    type: str
    """The path of a page about the code, at every node."""
    title: str
    status: int
    detail: str
    code: str
    retryable: bool


class Problem(_Problem, total=False):
    outcome: Literal["already_fired", "dead", "cancelled"]
    """Of a change that came too late."""
    existing: ProblemExisting
    """With exists, in_flight and version_mismatch: the timer that is there, where it is known."""


class _Health(TypedDict):
    status: str


class Health(_Health, total=False):
    version: str

Empty = Dict[str, Any]

Duration = str

Label = str

Labels = List[Label]

Reason = Literal["max_attempts", "expired", "stopped", "refused"]


Due = TypedDict(
    "Due",
    {
        "from": str,
        "from_ms": int,
        "until": str,
        "until_ms": int,
        "bucket_ms": int,
        "counts": List[int],
        "overdue": int,
        "later": int,
        "shards": int,
        "shards_counted": int,
    },
    total=False,
)


class MinuteFired(TypedDict, total=False):
    success: int
    retry: int
    dead: int


class MinuteLatenessMs(TypedDict, total=False):
    count: int
    p50: int
    p90: int
    p99: int
    max: int


class MinuteBackup(TypedDict, total=False):
    every: str
    """Five fields of cron, UTC."""
    last_success: str
    last_success_ms: int
    overdue_ms: int
    """For how long one has been due and is not made."""
    error: str
    """Why the last try failed."""


class Minute(TypedDict, total=False):
    name: str
    error: str
    """Why nothing is known of the node; then the rest is missing."""
    window_ms: int
    """A minute, or less when the node has only begun."""
    adds_per_second: float
    fired_per_second: float
    """Attempts that ended."""
    added: int
    changed: int
    cancelled: int
    fired: MinuteFired
    lateness_ms: MinuteLatenessMs
    """Of first attempts that no pause, breaker, key or limit delayed, rounded up by a fifth at most; count is of how many."""
    scheduled: int
    """Now, as those that follow, in the shards that the node leads."""
    leased: int
    dead: int
    overdue: int
    leads: int
    backup: MinuteBackup
    """Of a node with a schedule of backups. Only the one that makes them knows more than the schedule."""
    added_each_second: List[int]
    """The oldest first, up to 60."""
    fired_each_second: List[int]


class ClusterStats(TypedDict, total=False):
    nodes: List[Minute]
    total: Minute


class Callback(TypedDict, total=False):
    url: str
    """http or https; no userinfo or fragment."""
    method: Literal["POST", "PUT", "PATCH", "GET", "DELETE"]
    headers: Dict[str, str]
    """Values that look secret show as REDACTED; sent back so, they keep what is stored, as long as the URL's origin stays. A topic's headers go to the origin of its URL alone; a change of a timer's URL to another origin drops those that look secret."""
    timeout: Duration
    """100ms to 15m."""


class Retry(TypedDict, total=False):
    max_attempts: int
    min_backoff: Duration
    max_backoff: Duration
    """Up to 720h."""
    multiplier: float
    jitter: float


class When(TypedDict, total=False):
    at: Union[str, datetime]
    """Finer than a millisecond is rounded up."""
    at_ms: int
    """Unix milliseconds. A smaller number is taken for seconds and refused."""
    at_local: str
    """A local time without an offset, by the clocks of zone. One that a clock change skips is moved by the gap (02:30 becomes 03:30); of one that comes twice it is the first."""
    zone: str
    """With at_local, and only then: a name of the IANA data base. The zones are those of the release; /v1/cluster shows their version as tzdata."""
    delay: Union[Duration, timedelta]
    delay_ms: int


class Repeat(TypedDict, total=False):
    cron: str
    """Five fields: minute, hour, day of month, month, day of week. Either of the two days is enough, but where one of the two
    fields starts with * both must match, as Vixie's cron has it. A range does not go over the end of its field: fri-mon is
    fri-sat,sun-mon. A time
    given with it is the earliest start; none is needed. When clocks are set: a time of day that does not exist is taken
    by the offset before (02:30 becomes 03:30), one that comes twice is the first; where every hour matches, or the hour
    begins with *, the rhythm simply continues."""
    zone: str
    """IANA name, like Europe/Berlin; UTC without."""
    every: Duration
    """1s or longer, from due to due. Needs a time: that of the first occurrence. Where it is past, catch_up decides; a put of the same times continues with the pending occurrence."""
    until: Union[str, datetime]
    """No occurrence is due later, but one that a change of its own time moves there."""
    count: int
    """As many occurrences in all."""
    catch_up: Literal["one", "skip", "all"]
    """Occurrences missed while the cluster was down, the topic paused, or the last one still ran: one call for all of them (the
    one that is late, if it covers them), none (what is more than 10 s late does not count as in time), or each in turn."""
    overlap: bool
    """The next occurrence is scheduled as this one starts, and does not wait for its end; but of one id at most 100 run at a time. The id shows the latest that has not
    ended; a cancel is of all."""


class OutcomeTopic(TypedDict):
    topic: str

OnEnd = Union[OutcomeTopic, None]


class Fields(TypedDict, total=False):
    payload: Any
    """Any JSON value, kept byte by byte; up to 256 KiB, 64 levels."""
    payload_base64: Union[str, bytes]
    content_type: str
    callback: Callback
    priority: int
    """Of what is due, the higher first: calls within a shard, pulls in the whole topic."""
    weight: int
    """The share of the turns of its key, in a topic with per_key.fair: that of the key's newest timer that is due. In a topic without per_key: 422 bad_policy."""
    labels: Labels
    expires_after: Duration
    retry: Retry
    repeat: Repeat
    on_done: OnEnd
    on_dead: OnEnd


class _Attempt(TypedDict):
    attempt: int
    started_ms: int


class Attempt(_Attempt, total=False):
    ended_ms: int
    """Absent when it is not known."""
    lateness_ms: int
    """Of the first attempt, as in the timer."""
    status: int
    """Absent when there was no answer."""
    error: str
    answer: str
    """Of an attempt that failed: the first 1,024 bytes of what the receiver answered, cut back to a whole character. Absent when that was nothing, or the topic's policy `answers` is `none`."""
    answer_base64: str
    """Instead of answer where it is not UTF-8."""
    answer_type: str
    """Its Content-Type."""
    location: str
    """The Location of a 3xx."""


class _Timer(TypedDict):
    topic: str
    id: str
    uid: str
    version: int
    state: Literal["scheduled", "leased", "done", "dead", "cancelled"]
    due: Time
    due_ms: int
    priority: int
    attempts: int
    """Calls started."""
    max_attempts: int
    created: Time
    created_ms: int
    updated: Time
    updated_ms: int


class Timer(_Timer, total=False):
    payload: Any
    payload_base64: str
    content_type: str
    callback: Callback
    """What the timer itself says; the rest is the topic's."""
    weight: int
    """If one was given."""
    labels: Labels
    key: str
    retry: Retry
    """What the timer itself says."""
    last_status: int
    last_error: str
    """Why the last attempt that has ended failed, or the reason of a nack; it stays while the next attempt runs. It ends with the first 120 characters of what the receiver answered, if that is text, on one line: `status 500: card declined`. attempt_log has the attempts before."""
    next_attempt: Time
    next_attempt_ms: int
    fired: Time
    traceparent: str
    """W3C Trace Context of the request that made the timer."""
    tracestate: str
    fired_ms: int
    ended: Time
    """When it became done, dead or cancelled."""
    ended_ms: int
    asked: Time
    """When somebody last fired it by hand. A new time, from a PATCH, PUT, merge or reschedule, takes it away. So does a redrive, but from a timer that is not due yet: there it is the time of the redrive."""
    asked_ms: int
    lateness_ms: int
    """Of the first attempt: its start, behind the later of due and created, or behind asked if that is earlier."""
    reason: Reason
    expires_after: Duration
    repeat: Repeat
    on_done: OnEnd
    """What the timer itself says."""
    on_dead: OnEnd
    """What the timer itself says."""
    merged: bool
    """In the answer to an add that was merged with this timer."""
    late_by_ms: int
    """In the answer to an add, a PUT or a PATCH with an instant (at, at_ms, at_local) of more than a minute ago: how long ago. Often a mistake, such as a wrong year. The timer is due at once."""
    paused: bool
    """Somebody holds it; see its pause."""
    collected: int
    """How many payloads the array has of a timer that collects. After an add: of the array that the payload is in."""
    payload_left_out: bool
    """In the answer to an add that collects, in place of an array of over 16 KiB."""
    successor: bool
    """Another timer of this id waits until the running attempt has ended; of one that collects: until all attempts have (waits_for order)."""
    cancel_requested: bool
    waits_for: Literal["backoff", "topic_paused", "spread", "key", "consumer", "breaker", "concurrency", "rate", "slots", "zone", "window", "no_callback", "refused_address", "leader", "paused", "key_rate", "batch", "order", "turn"]
    """In reads and listings: what keeps a timer from its next attempt that is due, or between attempts. As the leader of its shard sees it at the moment; left out when nothing does, or when the leader could not be asked at once. A paused timer has it always, in answers to changes too."""
    waits_on: str
    """What it waits on there, in words: the topic (topic_paused, concurrency, rate), the destination with the state of its breaker and the next probe (breaker), the destination (slots), the id of the timer that goes first (key), the time zone that the leader's release does not know (zone)."""
    attempt_log: List[Attempt]
    """In a read of one timer, and in the history: the last attempts that have ended, oldest first. Where the history has none of them (it is off, or was lost), a read shows the last one. A listing of dead letters has the last one of each."""
    next: List[Time]
    """In a read with next, of a series: the due times to come, the pending occurrence's first, as if all calls were on time from now on."""
    next_ms: List[int]


class _OutcomePayload(TypedDict):
    outcome: Literal["done", "dead"]
    timer: Timer
    """The timer that has ended, with its attempts in attempt_log: the newest that fit into 4 KiB. All but the last have only the first 120 bytes of their answers, where these are text, and no answer_type or location. The history has all."""


class OutcomePayload(_OutcomePayload, total=False):
    reason: Reason
    payload_left_out: Literal[True]
    """With the payload of the timer the outcome's would be over 256 KiB."""


class Spec(When, Fields, total=False):
    id: str
    key: str
    merge: Literal["reject", "keep", "replace", "debounce", "collect"]
    """What becomes of the add when the id is scheduled; the topic's rule without. reject: 409 (200 for the same content).
    keep: the pending timer stays as it is. replace: the new one wins. debounce: it wins, no later than the moment of
    the first add + max_wait. When the id is leased, reject is 409 in_flight and the others become the successor, which
    starts after the running attempt has ended and supersedes its retries. Answered by 200 with "merged": true. It has
    no meaning for put.
    
    collect: the payload, which must be JSON (422 not_json) of at most 63 levels, is appended to the array that the pending timer will send: one
    call for all. The rest of the timer stays as its first add gave it; its time does too, unless there is a max_wait: then
    each add moves it, as with debounce. An array takes no more once collect_max is reached, 256 KiB would be passed, or a
    call of it has started: an add then begins the next one, a timer of its own with its own uid. That is due at its own
    time, a full one at once, and each waits until the one before has ended, retries included. GET shows the first of
    them, with "successor": true while others wait; DELETE ends all of them. PUT, and PATCH of the payload, replace the
    first one's array by what they give; a further add makes that the first of an array. 409 exists: the pending timer
    repeats, or its payload is not JSON, or has 64 levels. The call's type is application/json, whatever content_type is
    given. Does not go with repeat."""
    max_wait: Duration
    """With debounce or collect only; the topic's without."""
    collect_max: int
    """With collect only; the topic's without. So many payloads make the array full."""
    part: str
    """With collect only: a name of this payload, so that the add may be repeated. While an array of the id that has one of that name
    has not ended, 200 with that timer, and nothing is appended. Once it is done, dead or cancelled, or a cancel or another rule's
    add came while it ran, an add of that name is appended as any other, and so is delivered again."""
    if_late: Literal["fire", "reject"]
    """Whether a time that is given as an instant and is more than a minute past makes a timer, which is then due at once, or is
    refused: 410 over. An add that only repeats one which was made is answered with its timer by either. The same for put."""


class CallbackPatch(TypedDict, total=False):
    url: Optional[str]
    """http or https; no userinfo or fragment."""
    method: Optional[Literal["POST", "PUT", "PATCH", "GET", "DELETE"]]
    headers: Optional[Dict[str, Optional[str]]]
    """Values that look secret show as REDACTED; sent back so, they keep what is stored, as long as the URL's origin stays. A topic's headers go to the origin of its URL alone; a change of a timer's URL to another origin drops those that look secret."""
    timeout: Optional[Duration]
    """100ms to 15m."""


class RetryPatch(TypedDict, total=False):
    max_attempts: Optional[int]
    min_backoff: Optional[Duration]
    max_backoff: Optional[Duration]
    """Up to 720h."""
    multiplier: Optional[float]
    jitter: Optional[float]


class RepeatPatch(TypedDict, total=False):
    cron: Optional[str]
    """Five fields: minute, hour, day of month, month, day of week. Either of the two days is enough, but where one of the two
    fields starts with * both must match, as Vixie's cron has it. A range does not go over the end of its field: fri-mon is
    fri-sat,sun-mon. A time
    given with it is the earliest start; none is needed. When clocks are set: a time of day that does not exist is taken
    by the offset before (02:30 becomes 03:30), one that comes twice is the first; where every hour matches, or the hour
    begins with *, the rhythm simply continues."""
    zone: Optional[str]
    """IANA name, like Europe/Berlin; UTC without."""
    every: Optional[Duration]
    """1s or longer, from due to due. Needs a time: that of the first occurrence. Where it is past, catch_up decides; a put of the same times continues with the pending occurrence."""
    until: Optional[str]
    """No occurrence is due later, but one that a change of its own time moves there."""
    count: Optional[int]
    """As many occurrences in all."""
    catch_up: Optional[Literal["one", "skip", "all"]]
    """Occurrences missed while the cluster was down, the topic paused, or the last one still ran: one call for all of them (the
    one that is late, if it covers them), none (what is more than 10 s late does not count as in time), or each in turn."""
    overlap: Optional[bool]
    """The next occurrence is scheduled as this one starts, and does not wait for its end; but of one id at most 100 run at a time. The id shows the latest that has not
    ended; a cancel is of all."""


class Patch(When, total=False):
    payload: Optional[Any]
    """Any JSON value, kept byte by byte; up to 256 KiB, 64 levels."""
    payload_base64: Optional[Union[str, bytes]]
    content_type: Optional[str]
    callback: Optional[CallbackPatch]
    priority: Optional[int]
    """Of what is due, the higher first: calls within a shard, pulls in the whole topic."""
    weight: Optional[int]
    """The share of the turns of its key, in a topic with per_key.fair: that of the key's newest timer that is due. In a topic without per_key: 422 bad_policy."""
    labels: Optional[Labels]
    expires_after: Optional[Duration]
    retry: Optional[RetryPatch]
    repeat: Optional[RepeatPatch]
    on_done: Optional[OnEnd]
    on_dead: Optional[OnEnd]


class _TimerToBe(TypedDict):
    topic: str
    version: int
    state: Literal["scheduled", "leased", "done", "dead", "cancelled"]
    due: Time
    due_ms: int
    priority: int
    attempts: int
    max_attempts: int
    created: Time
    created_ms: int
    updated: Time
    updated_ms: int


class TimerToBe(_TimerToBe, total=False):
    weight: int
    """If one was given."""
    late_by_ms: int
    """As of a Timer."""


class _TimerList(TypedDict):
    timers: List[Timer]


class TimerList(_TimerList, total=False):
    next_cursor: str


class _Destination(TypedDict):
    destination: str
    """scheme://host:port"""
    state: Literal["open", "half-open", "closed"]
    """The worst of its breakers: of each node, and of topics that have their own."""
    calls: int
    """That run or are about to."""
    waiting: int
    """Timers that are due for it; of a serial topic the first of each key."""


class Destination(_Destination, total=False):
    since: Time
    """Absent when its breaker was never open."""
    since_ms: int
    latency_ms: float
    """Moving mean of its answers' times, of the node where it is longest."""
    last_error: str
    """Of the last call that failed."""
    failed: Time
    """When that was."""
    failed_ms: int
    failures: int
    """Calls that failed since one succeeded, of all nodes together, without those answered 410. Absent when there are none."""
    next_probe: Time
    """While it is open: when it is called again."""
    next_probe_ms: int
    nodes: List[str]
    """Where it is in that state; absent when it is closed."""
    topics: List[str]
    """Topics whose timers have called it, by name: the first that did since each node knows it."""
    more_topics: bool
    """There were others. Absent when there were none."""


class _DestinationList(TypedDict):
    destinations: List[Destination]


class DestinationList(_DestinationList, total=False):
    missing: List[str]
    """Names of nodes that did not answer."""
    next_cursor: str


class Entry(Timer, total=False):
    pass


class _HistoryList(TypedDict):
    entries: List[Entry]


class HistoryList(_HistoryList, total=False):
    next_cursor: str


class Outcome(TypedDict):
    outcome: Literal["prevented", "in_flight"]


class Cancelled(TypedDict):
    cancelled: int


class Op(Spec, total=False):
    op: Literal["add", "put", "patch", "cancel", "fire"]
    if_match: int
    """Not with add."""


class Batch(TypedDict):
    ops: List[Op]


class _OpResult(TypedDict):
    status: int


class OpResult(_OpResult, total=False):
    id: str
    timer: Timer
    late_by_ms: int
    """As of a Timer; in a batch it is here, also with brief."""
    truncated: Literal[True]
    """In place of the timer: it was changed, and the answer is too large to show it."""
    outcome: Literal["prevented", "in_flight"]
    error: Problem


class Results(TypedDict):
    results: List[OpResult]


DeadFilter = TypedDict(
    "DeadFilter",
    {
        "reason": Reason,
        "from": Union[str, int],
        "to": Union[str, int],
        "label": Union[Label, Labels],
    },
    total=False,
)


class Purge(TypedDict, total=False):
    ids: List[str]
    """Of each id the dead letter that died last. To repeat a call safely, give uids."""
    uids: List[str]
    """Dead letters by their uid: an id may have several, 100 at most."""
    filter: DeadFilter
    all: bool


class Redrive(Purge, total=False):
    delay: Duration
    callback: Callback


class TimerFilter(TypedDict, total=False):
    state: Union[str, List[Literal["scheduled", "leased"]]]
    """scheduled, leased, or both, as a comma list or a list."""
    due_from: Union[str, int]
    """RFC 3339, or Unix milliseconds."""
    due_to: Union[str, int]
    """RFC 3339, or Unix milliseconds."""
    label: Union[str, List[str]]
    """One that the timer has, or several that it has all."""
    id_prefix: str


class Selector(TypedDict, total=False):
    filter: TimerFilter
    all: bool


class Reschedule(TypedDict, total=False):
    filter: TimerFilter
    all: bool
    shift: str
    """A duration other than 0; also in days and weeks."""
    at: Union[str, datetime]
    at_ms: int
    at_local: str
    """With zone, as in an add."""
    zone: str
    not_before: Union[str, int]
    """RFC 3339, or Unix milliseconds."""


class NewSecret(TypedDict, total=False):
    secret: str
    """`whsec_` and the base64 of 24 to 64 bytes."""


class KeptSecret(TypedDict, total=False):
    keep: str
    """Fingerprint of the secret that stays."""


class _Secrets(TypedDict):
    topic: str
    secrets: List[str]
    """Fingerprints, the newest first."""


class Secrets(_Secrets, total=False):
    secret: str
    """The new secret, where the node has made it; nothing shows it again."""


class NewSigningKey(TypedDict, total=False):
    signing_key: str
    """`whsk_` and the base64 of the 64 bytes of an ed25519 private key."""


class KeptKey(TypedDict, total=False):
    keep: str
    """Public key of the one that stays."""


class PublicKeys(TypedDict):
    topic: str
    signing_keys: List[str]
    """Public keys, `whpk_` and the base64 of 32 bytes, the newest first."""


class _Changed(TypedDict):
    matched: int
    """Selected by the filter, and pending, when their turn came."""
    changed: int
    skipped: int
    """In flight. What is neither changed nor skipped was as asked already."""


class Changed(_Changed, total=False):
    dry_run: Literal[True]
    """Nothing was changed; left out where it was."""
    first: str
    """Of a dry run: the id of what would be changed and is due first; left out where nothing would be."""


class _Skip(TypedDict):
    code: Literal["not_found", "in_use", "busy", "no_callback"]
    """busy: 100 timers of the id have not ended. no_callback, of a redrive that gives no URL: neither the dead letter nor its topic has one."""
    detail: str


class Skip(_Skip, total=False):
    id: str
    uid: str


class _Swept(TypedDict):
    matched: int
    """Selected by the filter; or named, each id or uid once, also those that are no dead letters."""
    changed: int
    skipped: int
    """Not a dead letter (any more), its id is in use, or there is no URL to call. A dry run by filter cannot know which ids are in use again."""


class Swept(_Swept, total=False):
    skips: List[Skip]
    """Why dead letters were skipped, of the first 100; left out where none was."""
    dry_run: Literal[True]
    """Nothing was changed; left out where it was."""
    first: str
    """Of a dry run: the id of what would be changed and is due first; left out where nothing would be."""


Window = TypedDict(
    "Window",
    {
        "zone": str,
        "days": str,
        "from": str,
        "to": str,
        "except": List[str],
    },
    total=False,
)


class _BatchCallTimers(TypedDict):
    topic: str
    id: str
    webhook_id: str
    """The timer's: the same for all its attempts, also for one that is made alone."""
    due_ms: int
    """Unix milliseconds."""
    attempt: int
    fence: int
    """Grows with every attempt over the life of the id: refuse one that is not higher than the highest seen."""


class BatchCallTimers(_BatchCallTimers, total=False):
    asked_ms: int
    """When somebody fired the timer by hand, Unix milliseconds: the call may come before due_ms."""
    key: str
    """Of an id that begins with one."""
    payload: Any
    """The payload as it was given, where that is JSON."""
    payload_base64: str
    """The payload, where it is not JSON. With neither the timer has none."""
    content_type: str
    """Of the payload, if the add named one."""


class BatchCall(TypedDict):
    timers: List[BatchCallTimers]


class _BatchAnswerFailed(TypedDict):
    webhook_id: str
    """One that is not in the call is ignored."""


class BatchAnswerFailed(_BatchAnswerFailed, total=False):
    error: str
    """Shows in last_error, after `failed: `, cut to 256 bytes."""


class BatchAnswer(TypedDict, total=False):
    failed: List[BatchAnswerFailed]
    """The timers that are to be retried."""


WindowPatch = TypedDict(
    "WindowPatch",
    {
        "zone": Optional[str],
        "days": Optional[str],
        "from": Optional[str],
        "to": Optional[str],
        "except": Optional[List[str]],
    },
    total=False,
)


class PolicyPatchBatch(TypedDict, total=False):
    max: Optional[int]
    """Timers in a call."""
    wait: Optional[Duration]
    """At most 60s. A call that is not full goes this long after the first one's due time."""
    by: Optional[Literal["topic", "key"]]
    """key: only timers of one key share a call."""


class PolicyPatchRate(TypedDict, total=False):
    per_second: Optional[float]
    burst: Optional[int]
    """Default: what one second brings, at least 1."""


class PolicyPatchPerKeyRate(TypedDict, total=False):
    per_second: Optional[float]
    burst: Optional[int]
    """Default: what one second brings, at least 1."""


class PolicyPatchPerKey(TypedDict, total=False):
    concurrency: Optional[int]
    """Leases of one key at once; without it any number. In a serial topic 1."""
    rate: Optional[PolicyPatchPerKeyRate]
    """Deliveries of one key. Its bucket begins empty when its shard gets a new leader."""
    fair: Optional[bool]
    """What is due goes in turn by key, by weight; within a key by priority. Else the order is that of other topics."""


class PolicyPatchBreaker(TypedDict, total=False):
    failures: Optional[int]
    window: Optional[Duration]
    open: Optional[Duration]
    probes: Optional[int]


class PolicyPatch(TypedDict, total=False):
    delivery: Optional[Literal["push", "pull"]]
    """Changes only while nothing is leased: else 409 in_flight."""
    callback: Optional[CallbackPatch]
    ack: Optional[Literal["response", "report"]]
    """report: a 202 leaves the timer with the receiver for the lease; it ends it with the call's Carillon-Receipt."""
    lease: Optional[Duration]
    """1s to 12h. How long a consumer has a timer: who pulled it, or who answered 202."""
    retry: Optional[RetryPatch]
    stop_on: Optional[List[int]]
    merge: Optional[Literal["reject", "keep", "replace", "debounce", "collect"]]
    max_wait: Optional[Duration]
    """Of debounced adds and of those that collect that say none."""
    collect_max: Optional[int]
    """Of adds that collect and say none."""
    dedup: Optional[Literal["id", "content"]]
    """content: an add without an id gets one made of topic, payload and URL."""
    serial: Optional[bool]
    """One lease per key, in order of due time, then arrival; the head blocks its key through its backoff. Priority is not used."""
    key: Optional[str]
    """The key of adds that say none and whose id has no braces. Their id then has it in front, `{key}x`, and is found as `x` too. With serial, a whole topic goes one at a time, in order."""
    if_late: Optional[Literal["fire", "reject"]]
    """Of adds that say none."""
    window: Optional[WindowPatch]
    on_done: Optional[OnEnd]
    """Of timers that say nothing of it; left out without one."""
    on_dead: Optional[OnEnd]
    """Of timers that say nothing of it; left out without one."""
    answers: Optional[Literal["failed", "none"]]
    """What is kept of the receivers' answers: those of attempts that failed, for attempt_log and last_error, or none."""
    batch: Optional[PolicyPatchBatch]
    """Many timers in one call, see the webhook batch. Not with delivery pull, ack report, serial, or a callback method GET or DELETE: 422 bad_policy. Then an add with one of these methods is 422 as well."""
    concurrency: Optional[int]
    """Leases at once in the whole cluster; 0 = unlimited."""
    rate: Optional[PolicyPatchRate]
    """Deliveries in the whole cluster."""
    per_key: Optional[PolicyPatchPerKey]
    """Of the timers of each key: its limits in the whole cluster, and whether keys take turns. Timers without a key share one."""
    breaker: Optional[PolicyPatchBreaker]
    destination_concurrency: Optional[int]
    spread: Optional[Duration]
    """Timers of one instant start within this window, deterministically by id; due stays. One that is fired by hand does not wait for it. At most 168h."""
    history: Optional[Duration]
    dead_retention: Optional[Duration]
    secrets: Optional[List[str]]
    """whsec_ and 24 to 64 bytes in base64. Shown as fingerprints (sha256:…); a fingerprint sent back keeps its secret."""
    signing_keys: Optional[List[str]]
    """whsk_ and the 64 bytes of an ed25519 private key in base64. Shown as public keys (whpk_…), which receivers check v1a signatures with; one sent back keeps its private key."""
    format: Optional[Literal["plain", "cloudevents"]]
    """cloudevents: calls carry the headers of CloudEvents 1.0 too, in binary mode."""


class _PolicyBatch(TypedDict):
    max: int
    """Timers in a call."""


class PolicyBatch(_PolicyBatch, total=False):
    wait: Duration
    """At most 60s. A call that is not full goes this long after the first one's due time."""
    by: Literal["topic", "key"]
    """key: only timers of one key share a call."""


class _PolicyRate(TypedDict):
    per_second: float


class PolicyRate(_PolicyRate, total=False):
    burst: int
    """Default: what one second brings, at least 1."""


class _PolicyPerKeyRate(TypedDict):
    per_second: float


class PolicyPerKeyRate(_PolicyPerKeyRate, total=False):
    burst: int
    """Default: what one second brings, at least 1."""


class PolicyPerKey(TypedDict, total=False):
    concurrency: int
    """Leases of one key at once; without it any number. In a serial topic 1."""
    rate: PolicyPerKeyRate
    """Deliveries of one key. Its bucket begins empty when its shard gets a new leader."""
    fair: bool
    """What is due goes in turn by key, by weight; within a key by priority. Else the order is that of other topics."""


class PolicyBreaker(TypedDict, total=False):
    failures: int
    window: Duration
    open: Duration
    probes: int


class Policy(TypedDict, total=False):
    delivery: Literal["push", "pull"]
    """Changes only while nothing is leased: else 409 in_flight."""
    callback: Callback
    ack: Literal["response", "report"]
    """report: a 202 leaves the timer with the receiver for the lease; it ends it with the call's Carillon-Receipt."""
    lease: Duration
    """1s to 12h. How long a consumer has a timer: who pulled it, or who answered 202."""
    retry: Retry
    stop_on: List[int]
    merge: Literal["reject", "keep", "replace", "debounce", "collect"]
    max_wait: Duration
    """Of debounced adds and of those that collect that say none."""
    collect_max: int
    """Of adds that collect and say none."""
    dedup: Literal["id", "content"]
    """content: an add without an id gets one made of topic, payload and URL."""
    serial: bool
    """One lease per key, in order of due time, then arrival; the head blocks its key through its backoff. Priority is not used."""
    key: str
    """The key of adds that say none and whose id has no braces. Their id then has it in front, `{key}x`, and is found as `x` too. With serial, a whole topic goes one at a time, in order."""
    if_late: Literal["fire", "reject"]
    """Of adds that say none."""
    window: Window
    on_done: OnEnd
    """Of timers that say nothing of it; left out without one."""
    on_dead: OnEnd
    """Of timers that say nothing of it; left out without one."""
    answers: Literal["failed", "none"]
    """What is kept of the receivers' answers: those of attempts that failed, for attempt_log and last_error, or none."""
    batch: PolicyBatch
    """Many timers in one call, see the webhook batch. Not with delivery pull, ack report, serial, or a callback method GET or DELETE: 422 bad_policy. Then an add with one of these methods is 422 as well."""
    concurrency: int
    """Leases at once in the whole cluster; 0 = unlimited."""
    rate: PolicyRate
    """Deliveries in the whole cluster."""
    per_key: PolicyPerKey
    """Of the timers of each key: its limits in the whole cluster, and whether keys take turns. Timers without a key share one."""
    breaker: PolicyBreaker
    destination_concurrency: int
    spread: Duration
    """Timers of one instant start within this window, deterministically by id; due stays. One that is fired by hand does not wait for it. At most 168h."""
    history: Duration
    dead_retention: Duration
    secrets: List[str]
    """whsec_ and 24 to 64 bytes in base64. Shown as fingerprints (sha256:…); a fingerprint sent back keeps its secret."""
    signing_keys: List[str]
    """whsk_ and the 64 bytes of an ed25519 private key in base64. Shown as public keys (whpk_…), which receivers check v1a signatures with; one sent back keeps its private key."""
    format: Literal["plain", "cloudevents"]
    """cloudevents: calls carry the headers of CloudEvents 1.0 too, in binary mode."""


class Pull(TypedDict, total=False):
    max: int
    wait: Duration
    """At most 60s. The answer comes as soon as there is something."""
    lease: Duration
    """1s to 12h; else as the topic says."""


class Lease(Timer):
    receipt: str
    """Names the lease in ack, nack and extend, at any node."""
    fence: int
    """Grows with every lease over the life of the id: who has seen a higher one drops a lower."""
    attempt: int
    lease_until: Time
    lease_until_ms: int


class PulledList(TypedDict):
    timers: List[Lease]
    """In order of priority, due time, arrival. Fewer than asked for when there are no more, when others were quicker, or beyond about 4 MiB."""

Receipts = List[str]


class Ack(TypedDict):
    receipts: Receipts


class _Nack(TypedDict):
    receipts: Receipts


class Nack(_Nack, total=False):
    delay: Duration
    """Until the next attempt; else the backoff."""
    reason: str
    """Shows as last_error, on one line."""


class _Extend(TypedDict):
    receipts: Receipts


class Extend(_Extend, total=False):
    lease: Duration
    """1s to 12h, from now on; else as the topic says."""


class _ReceiptResult(TypedDict):
    receipt: str
    status: Literal[200, 410]
    """410: that lease is over, or there never was one."""


class ReceiptResult(_ReceiptResult, total=False):
    code: Literal["over"]


class ClaimResults(TypedDict):
    results: List[ReceiptResult]


class _Counts(TypedDict):
    scheduled: int
    """Includes ready."""
    ready: int
    leased: int
    done: int
    dead: int


class Counts(_Counts, total=False):
    waiting: Dict[str, int]
    """How many timers that are due, or between attempts, wait for what, by the causes of waits_for. Left out where none does. Counts are of leaders alone: while a shard has none, 503."""


FieldChange = TypedDict(
    "FieldChange",
    {
        "field": str,
        "from": Any,
        "to": Any,
    },
    total=False,
)


class _Topic(TypedDict):
    topic: str
    policy: Policy
    paused: bool
    auto_created: bool


class Topic(_Topic, total=False):
    version: str
    """Of its policy and pause, for If-Match; the ETag without quotes."""
    counts: Counts
    """Left out where they cannot be had now, except when one topic is read."""
    oldest_overdue_ms: int
    """How long ago the oldest of counts.ready was due, whatever it waits for: its receiver, its key, or another of the causes of waits_for. One that failed before was due for its next attempt, one with spread at the end of it. 0: none is ready."""
    former_ids: int
    """In the answer of a change of the key: pending timers that keep their ids, those of before a forced change, and of any change those that were added while it was made. These lead to them (`{all}x`), as the plain id (`x`) does not any more."""
    without_url: int
    """In the answer of a change: pending timers that have no callback URL of their own, in a topic that has none. They will wait for no_callback."""
    action: Literal["create", "change", "leave"]
    """In the answer of a dry run."""
    changes: List[FieldChange]
    """In the answer of a dry run whose action is change, by field."""


class _TopicList(TypedDict):
    topics: List[Topic]


class TopicList(_TopicList, total=False):
    next_cursor: str

NodeState = Literal["alive", "suspect", "down", "draining", "drained", "left"]


class NodeChange(TypedDict):
    name: str
    state: NodeState


class _Node(TypedDict):
    name: str
    state: NodeState
    leads: int
    """Shards that it leads. Of a suspect node: what it said last, where nobody else says to lead. All together they are never more than there are shards."""
    replicas: int
    """Shards of which it holds a replica."""


class Node(_Node, total=False):
    http: str
    """host:port of its API."""
    zone: str
    """As it was started; left out when it has none."""
    version: str
    """Of its program."""
    feature_level: int
    """The highest feature level that it understands."""
    starts: int
    """How often its process has been started, as it was last heard to say: a higher number after a restart. Left out when it was never heard."""
    silent_ms: int
    """How long ago the answering node last heard it; what is said of it is as of then. Left out for the answering node itself."""
    unfit: str
    """Why it hands its shards over to others: its clock is off, its disk is slow, or a replica of it is stopped or has a wrong state. Left out when nothing is wrong."""
    low_disk: bool
    """Its disk is almost full, so that shards with a replica on it refuse adds. Left out when it is not."""
    clock_offset_ms: int
    """How far its clock is ahead of the cluster's; left out when not known."""


class _Shard(TypedDict):
    shard: int
    epoch: int
    """Grows with every change of its placement."""
    replicas: List[str]
    """Names of nodes, the preferred leader first."""
    state: Literal["ok", "moving", "degraded", "no_quorum"]
    """moving: its replicas are being changed. degraded: it has fewer replicas than it should, or not all of them, or not its leader, are heard just now (a suspect node is not). no_quorum: neither accepts nor fires."""


class Shard(_Shard, total=False):
    leader: str
    """A node's name; left out when none is known."""
    full: bool
    """It holds as much as one can, and refuses adds. Left out when it does not, and by nodes without a replica of it, which do not know."""


class ShardDetail(Shard, total=False):
    term: int
    applied: int
    """Index of the last log entry applied."""
    hash: str
    """Of the state after that entry. Replicas that have applied as much have the same."""
    timers: int
    """Not finished."""


class Replicas(TypedDict):
    replicas: int


class ShardsWish(TypedDict):
    shards: int


class _ShardsNeed(TypedDict):
    bytes: int
    """That the nodes write and send, all together."""
    memory_bytes: int
    """Of a node, while it divides a shard."""
    lasting_memory_bytes: int
    """Of each node, from then on: what the new shards take themselves, besides their timers."""
    moves: int
    """Replicas that go to other nodes afterwards."""


class ShardsNeed(_ShardsNeed, total=False):
    waits_for: Literal["majority", "move", "disk", "memory"]
    """What the growth would wait for as things are, as in Resharding. Left out where nothing is unusual."""
    shard: int
    """Before which it would wait. Left out without waits_for."""


Resharding = TypedDict(
    "Resharding",
    {
        "from": int,
        "to": int,
        "done": int,
        "shard": int,
        "waits_for": Literal["majority", "move", "disk", "memory"],
    },
    total=False,
)


class _Moves(TypedDict):
    under_way: int
    """On their way, or given up."""
    bytes: int
    """Of those, about; small shards count for nothing."""
    waiting: int
    """About."""
    repairs: int
    """Of both, those that bring shards back to their number of replicas. They come first."""


class Moves(_Moves, total=False):
    at_limit: List[str]
    """Nodes for which some wait: each sends or receives as much as it may."""
    waits_for: List[str]
    """Nodes that are down or not fit: until they are well or replaced, balance waits, and what no other node can take of drains and new replicas. With neither, a node has just joined, and others may follow."""


class Clock(TypedDict):
    now: str
    now_ms: int


class ClockMove(TypedDict, total=False):
    advance: str
    """How far: a duration, 0 or longer. 400 `bad_time` where it would pass the end of `to`."""
    to: str
    """To when: RFC 3339. At most 292 years from where the clock was when the node started, and not beyond 9999; else 400 `bad_time`."""


class _ClockMoved(TypedDict):
    now: str
    now_ms: int
    calls: int
    """Made to receivers on the way."""
    left: int
    """Timers that were due by now, have not ended, and wait for somebody."""


class ClockMoved(_ClockMoved, total=False):
    stopped: bool
    """True: it was too much for one request; asking again goes on. Left out otherwise."""


class FeatureLevel(TypedDict):
    feature_level: int


class Upgrade(TypedDict):
    feature_level: int
    """That the newest release understands."""
    lacking: List[str]
    """Names of the nodes that do not understand it. None: it waits for POST /v1/cluster/finalize."""


class _Cluster(TypedDict):
    version: str
    """Of the answering node's program."""
    tzdata: str
    """The version of that program's time zones. They come with the release and never from the machine."""
    healthy: bool
    """All nodes are alive or drained, and all shards ok, or moving while their number grows."""
    nodes: List[Node]
    shards: List[Shard]


class Cluster(_Cluster, total=False):
    cluster_id: str
    """Left out before the founding."""
    replicas: int
    """That each shard should have, on at most as many nodes as there are. Left out before the founding."""
    shards_total: int
    """How many shards there are. While their number grows, how many there will be at the end of this doubling, of which a growth to 4 times as many has two. Left out before the founding."""
    resharding: Resharding
    moves: Moves
    feature_level: int
    """What the cluster uses: nothing of a later level. Left out before the founding."""
    upgrade: Upgrade
    test_clock: bool
    """True: the node runs by a test clock, see /v1/clock. Left out otherwise."""
    scopes: List[Literal["add", "cancel", "read", "topics", "admin", "cluster"]]
    """Of the token that asks. Left out where none is asked for."""
