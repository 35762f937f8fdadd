"""The client of a cluster."""

from __future__ import annotations

import ssl
import threading
from datetime import datetime, timedelta
from typing import Any, Callable, Dict, Iterator, List, Literal, Optional, Sequence, Union

from . import types as t
from .calls import Calls, Cancel, Request, path
from .errors import Error, Problem
from .events import Events
from .worker import Worker

_PAGE = 1000  # the largest that there is
_DRY_RUN = {"dry_run": True}
_FOREVER = float("inf")
_MOVE_LIMIT = 70.0  # more than a node takes for one move of its clock


class Client:
    """Makes calls to one cluster, from any number of threads. It connects to nothing yet. Any node
    takes any call.

    A refusal is a Problem, with its code. Unanswered means that there was no answer, and then a
    change may or may not have been made. Calls that are safe to repeat are repeated: reads, a
    cancel without a condition, put_topic, ack, nack, extend, changes of a node but its removal, a
    put without a condition or a count and with an absolute time, and an add with an id and an
    absolute time or with an idempotency_key, that does not repeat and names no merge rule but
    reject; where it may have been done and the rule is the topic's, only if that rejects, too; and
    one with an id and a part, of those that collect. Another node is tried when one does not
    answer; a call about one timer goes to the node that leads its shard, where an answer has named
    that.

    retries is how often a call is repeated at most, max_wait the longest pause before that, even
    if Retry-After is longer, and timeout the limit of a call with its repetitions; all times are
    seconds. Changes of many timers and streams have no limit. Every call takes a timeout of its
    own.
    """

    def __init__(
        self, urls: Union[str, Sequence[str]], *, token: Optional[str] = None, retries: int = 4, max_wait: float = 10.0,
        timeout: float = 60.0, ssl_context: Optional[ssl.SSLContext] = None, user_agent: str = "carillon-client-python",
    ) -> None:
        self.calls = Calls(urls, token, retries, max_wait, timeout, ssl_context, user_agent)

    def close(self) -> None:
        """Closes idle connections."""
        self.calls.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def request(self, r: Request) -> Any:
        """Makes a call of a route that has no method here, and reads its answer."""
        return self.calls.json(r)

    # Timers.

    def add(
        self, topic: str, spec: t.Spec, *, idempotency_key: Optional[str] = None, timeout: Optional[float] = None
    ) -> t.Timer:
        """Adds a timer, and makes its topic if need be. An idempotency_key, instead of an id,
        makes the id, so that an add without an answer may be repeated, with a delay, too. Where
        the topic decides on a merge, its policy is read before that, for which the token needs the
        scope read: if that merges, or cannot be read, the add is not repeated, which would merge
        it twice."""
        r = self._addition(topic, spec, idempotency_key, timeout)
        rejects = bool(idempotency_key) or spec.get("merge") == "reject"  # whatever the topic's rule
        identified = bool(spec.get("id") and _absolute(spec) or idempotency_key)
        part = bool(spec.get("id") and spec.get("part"))
        r.repeatable = identified and (rejects or not spec.get("merge")) and not spec.get("repeat") or part
        timer: t.Timer = self.calls.json(r, None if rejects or part else lambda left: self._rejects(topic, left))
        return timer

    def _rejects(self, topic: str, timeout: float) -> bool:
        """Whether adds of a topic that name no rule are surely not merged."""
        try:
            return self.topic(topic, timeout=timeout)["policy"]["merge"] == "reject"
        except Problem as err:
            return err.code == "unknown_topic"
        except (Error, ValueError, LookupError, TypeError):
            return False

    def dry_add(
        self, topic: str, spec: t.Spec, *, idempotency_key: Optional[str] = None, timeout: Optional[float] = None
    ) -> t.Timer:
        """The timer that add would make, without a uid; of a series with its first due times.
        Makes none."""
        return self._dry(self._addition(topic, spec, idempotency_key, timeout))

    def _addition(self, topic: str, spec: t.Spec, key: Optional[str], timeout: Optional[float]) -> Request:
        headers = {"Idempotency-Key": f'"{key}"'} if key else {}
        place = spec.get("id") or ("{%s}" % spec["key"] if spec.get("key") else "")  # an id in the timer's shard
        return Request("POST", path("topics", topic, "timers"), {}, spec, headers, topic, place, timeout=timeout)

    def put(
        self, topic: str, id: str, spec: t.Spec, *, if_match: int = 0, create_only: bool = False,
        timeout: Optional[float] = None,
    ) -> t.Timer:
        """Creates the timer, or replaces all of it: only at that version, or only if the id is
        not in use."""
        r = self._put(topic, id, spec, if_match, create_only, timeout)
        counted = (spec.get("repeat") or {}).get("count")
        # A delay would start again, and so would a count.
        r.repeatable = not if_match and not create_only and _absolute(spec) and not counted
        return self._timer(r)

    def dry_put(
        self, topic: str, id: str, spec: t.Spec, *, if_match: int = 0, create_only: bool = False,
        timeout: Optional[float] = None,
    ) -> t.Timer:
        """Is to put what dry_add is to add."""
        return self._dry(self._put(topic, id, spec, if_match, create_only, timeout))

    def _put(
        self, topic: str, id: str, spec: t.Spec, if_match: int, create_only: bool, timeout: Optional[float]
    ) -> Request:
        r = _of_timer("PUT", topic, id, if_match, timeout, spec)
        if create_only:
            r.headers = {**r.headers, "If-None-Match": "*"}
        return r

    def patch(
        self, topic: str, id: str, patch: t.Patch, *, if_match: int = 0, timeout: Optional[float] = None
    ) -> t.Timer:
        """Changes parts of a timer, all at once. None resets a field to the topic's default."""
        return self._timer(_of_timer("PATCH", topic, id, if_match, timeout, patch))

    def dry_patch(
        self, topic: str, id: str, patch: t.Patch, *, if_match: int = 0, timeout: Optional[float] = None
    ) -> t.Timer:
        """Is to patch what dry_add is to add."""
        return self._dry(_of_timer("PATCH", topic, id, if_match, timeout, patch))

    def cancel(
        self, topic: str, id: str, *, if_match: int = 0, timeout: Optional[float] = None
    ) -> Literal["prevented", "in_flight"]:
        """Cancels a timer: prevented, or in_flight while a call runs. When it came too late the
        error is a Problem with the code over and the outcome."""
        r = _of_timer("DELETE", topic, id, if_match, timeout)
        r.repeatable = not if_match
        outcome: Literal["prevented", "in_flight"] = self.calls.json(r)["outcome"]
        return outcome

    def get(self, topic: str, id: str, *, next: Optional[int] = None, timeout: Optional[float] = None) -> t.Timer:
        """Reads a timer as it stands; of a series with so many due times to come. Without one:
        unknown_timer."""
        r = _of_timer("GET", topic, id, 0, timeout)
        r.query, r.repeatable = {"next": next}, True
        return self._timer(r)

    def fire(self, topic: str, id: str, *, if_match: int = 0, timeout: Optional[float] = None) -> t.Timer:
        """Has a timer's next attempt made now."""
        r = _of_timer("POST", topic, id, if_match, timeout)
        r.path += "/fire"
        return self._timer(r)

    def pause_timer(self, topic: str, id: str, *, if_match: int = 0, timeout: Optional[float] = None) -> t.Timer:
        """Holds a timer: no attempt starts until it is resumed. It may be held already. Occurrences
        of a series that come due meanwhile are missed and follow its catch_up."""
        return self._hold("pause", topic, id, if_match, timeout)

    def resume_timer(self, topic: str, id: str, *, if_match: int = 0, timeout: Optional[float] = None) -> t.Timer:
        """Lets a timer that was paused go on. If its time has passed, it is called now."""
        return self._hold("resume", topic, id, if_match, timeout)

    def _hold(self, verb: str, topic: str, id: str, if_match: int, timeout: Optional[float]) -> t.Timer:
        r = _of_timer("POST", topic, id, if_match, timeout)
        r.path += "/" + verb
        r.repeatable = True
        return self._timer(r)

    def list(
        self, topic: str, *, state: Optional[str] = None, due_from: t.TimeOrText = None, due_to: t.TimeOrText = None,
        label: Union[str, Sequence[str]] = (), id_prefix: Optional[str] = None, payload: Optional[bool] = None,
        timeout: Optional[float] = None,
    ) -> Iterator[t.Timer]:
        """Goes through the timers that are selected, by due time, then id."""
        query = {
            "state": state, "due_from": due_from, "due_to": due_to, "label": label, "id_prefix": id_prefix,
            "payload": payload,
        }
        return self._pages(path("topics", topic, "timers"), "timers", query, timeout)

    def list_all(
        self, *, id: Optional[str] = None, state: Optional[str] = None, due_from: t.TimeOrText = None,
        due_to: t.TimeOrText = None, label: Union[str, Sequence[str]] = (), id_prefix: Optional[str] = None,
        payload: Optional[bool] = None, timeout: Optional[float] = None,
    ) -> Iterator[t.Timer]:
        """Goes through the timers of all topics that the token reaches; id is a whole id."""
        query = {
            "id": id, "state": state, "due_from": due_from, "due_to": due_to, "label": label, "id_prefix": id_prefix,
            "payload": payload,
        }
        return self._pages(path("timers"), "timers", query, timeout)

    def batch(
        self, topic: str, ops: Sequence[t.Op], *, brief: bool = False, timeout: Optional[float] = None
    ) -> List[t.OpResult]:
        """Does up to 1,000 operations; those of one id in order. Each has its own result. brief
        leaves the timers out of these."""
        query = {"brief": brief or None}
        body = {"ops": ops}
        results: List[t.OpResult] = self._post(("topics", topic, "batch"), body, query, timeout=timeout)["results"]
        return results

    def cancel_all(
        self, topic: str, selector: t.Selector, *, dry_run: bool = False, timeout: Optional[float] = None
    ) -> t.Changed:
        """Cancels the timers that are selected. It may take long, and is safe to repeat."""
        changed: t.Changed = self._many(("topics", topic, "cancel"), selector, dry_run, timeout)
        return changed

    def pause_timers(
        self, topic: str, selector: t.Selector, *, dry_run: bool = False, timeout: Optional[float] = None
    ) -> t.Changed:
        """Holds the timers that are selected. It may take long, and is safe to repeat."""
        changed: t.Changed = self._many(("topics", topic, "pause-timers"), selector, dry_run, timeout)
        return changed

    def resume_timers(
        self, topic: str, selector: t.Selector, *, dry_run: bool = False, timeout: Optional[float] = None
    ) -> t.Changed:
        """Lets the timers that are selected go on. It may take long, and is safe to repeat."""
        changed: t.Changed = self._many(("topics", topic, "resume-timers"), selector, dry_run, timeout)
        return changed

    def reschedule(
        self, topic: str, to: t.Reschedule, *, dry_run: bool = False, timeout: Optional[float] = None
    ) -> t.Changed:
        """Moves the timers that are selected. It may take long. Repeating is safe but for a
        shift, which moves the same timers again."""
        changed: t.Changed = self._many(("topics", topic, "reschedule"), to, dry_run, timeout)
        return changed

    # Dead letters and history.

    def dead_letters(
        self, topic: str, *, reason: Optional[str] = None, start: t.TimeOrText = None, end: t.TimeOrText = None,
        label: Union[str, Sequence[str]] = (), timeout: Optional[float] = None,
    ) -> Iterator[t.Timer]:
        """Goes through a topic's dead letters, by when they died."""
        query = {"reason": reason, "from": start, "to": end, "label": label}
        return self._pages(path("topics", topic, "dead"), "timers", query, timeout)

    def redrive_dead(
        self, topic: str, redrive: t.Redrive, *, dry_run: bool = False, timeout: Optional[float] = None
    ) -> t.Swept:
        """Schedules dead letters again, with all their attempts before them."""
        swept: t.Swept = self._many(("topics", topic, "dead", "redrive"), redrive, dry_run, timeout)
        return swept

    def purge_dead(
        self, topic: str, purge: t.Purge, *, dry_run: bool = False, timeout: Optional[float] = None
    ) -> t.Swept:
        """Forgets dead letters."""
        swept: t.Swept = self._many(("topics", topic, "dead", "purge"), purge, dry_run, timeout)
        return swept

    def history(
        self, topic: str, *, id: Optional[str] = None, start: t.TimeOrText = None, end: t.TimeOrText = None,
        state: Optional[str] = None, timeout: Optional[float] = None,
    ) -> Iterator[t.Entry]:
        """Goes through a topic's timers that have ended, as long as its policy keeps them."""
        query = {"id": id, "from": start, "to": end, "state": state}
        return self._pages(path("topics", topic, "history"), "entries", query, timeout)

    # Topics.

    def put_topic(
        self, topic: str, policy: t.Policy, *, if_match: str = "", force: bool = False, dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> t.Topic:
        """Sets a topic's whole policy, and makes the topic if need be. What is left out goes
        back to its default. A dry run changes nothing and returns the topic as it would be, with
        its action and changes."""
        r = _of_topic("PUT", topic, if_match, force, timeout, policy, dry_run)
        r.repeatable = dry_run or not if_match
        return self._topic(r)

    def patch_topic(
        self, topic: str, patch: t.PolicyPatch, *, if_match: str = "", force: bool = False, dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> t.Topic:
        """Changes some fields of a topic's policy. None resets a field to its default. A dry run is
        as of put_topic."""
        r = _of_topic("PATCH", topic, if_match, force, timeout, patch, dry_run)
        r.repeatable = dry_run
        return self._topic(r)

    def topic(self, topic: str, *, timeout: Optional[float] = None) -> t.Topic:
        """Reads a topic with its counts."""
        r = _of_topic("GET", topic, "", False, timeout)
        r.repeatable = True
        return self._topic(r)

    def topics(
        self, *, prefix: Optional[str] = None, counts: bool = False, timeout: Optional[float] = None
    ) -> Iterator[t.Topic]:
        """Goes through the topics that the token sees, by name."""
        return self._pages(path("topics"), "topics", {"prefix": prefix, "counts": counts or None}, timeout)

    def delete_topic(
        self, topic: str, *, if_match: str = "", force: bool = False, timeout: Optional[float] = None
    ) -> int:
        """Removes a topic, which must be empty unless force is set. Gives how many timers that
        cancelled."""
        cancelled: int = self.calls.json(_of_topic("DELETE", topic, if_match, force, timeout))["cancelled"]
        return cancelled

    def pause(self, topic: str, *, timeout: Optional[float] = None) -> t.Topic:
        """Stops deliveries of a topic; its timers wait."""
        return self._topic(Request("POST", path("topics", topic, "pause"), timeout=timeout))

    def resume(self, topic: str, *, timeout: Optional[float] = None) -> t.Topic:
        """Undoes pause."""
        return self._topic(Request("POST", path("topics", topic, "resume"), timeout=timeout))

    def rotate_secret(
        self, topic: str, secret: Optional[str] = None, *, timeout: Optional[float] = None
    ) -> t.Secrets:
        """Adds a signing secret, as new_secret makes it, before those that a topic has. Each of
        them signs every call until finish_rotation. Without one the node makes it, and the call
        is not repeated."""
        body = {"secret": secret} if secret else {}
        parts = ("topics", topic, "secrets", "rotate")
        secrets: t.Secrets = self._post(parts, body, repeatable=bool(secret), timeout=timeout)
        return secrets

    def finish_rotation(self, topic: str, keep: Optional[str] = None, *, timeout: Optional[float] = None) -> t.Secrets:
        """Drops all secrets of a topic but that with the fingerprint keep, or but the newest."""
        body = {"keep": keep} if keep else {}
        parts = ("topics", topic, "secrets", "finish")
        secrets: t.Secrets = self._post(parts, body, repeatable=True, timeout=timeout)
        return secrets

    def rotate_signing_key(
        self, topic: str, signing_key: Optional[str] = None, *, timeout: Optional[float] = None
    ) -> t.PublicKeys:
        """Is rotate_secret for asymmetric keys, whsk_…. Without one the node makes it, and
        nobody sees it."""
        body = {"signing_key": signing_key} if signing_key else {}
        parts = ("topics", topic, "signing-keys", "rotate")
        keys: t.PublicKeys = self._post(parts, body, repeatable=bool(signing_key), timeout=timeout)
        return keys

    def finish_key_rotation(
        self, topic: str, keep: Optional[str] = None, *, timeout: Optional[float] = None
    ) -> t.PublicKeys:
        """Drops all signing keys of a topic but that of the public key keep, or but the newest."""
        body = {"keep": keep} if keep else {}
        parts = ("topics", topic, "signing-keys", "finish")
        keys: t.PublicKeys = self._post(parts, body, repeatable=True, timeout=timeout)
        return keys

    # Pull topics, and reports.

    def pull(
        self, topic: str, *, max: int = 1, wait: float = 0.0, lease: Optional[float] = None,
        timeout: Optional[float] = None, cancel: Optional[Cancel] = None,
    ) -> List[t.Lease]:
        """Takes timers of a pull topic that are ready. None, after the wait, is no error. It is
        not repeated: timers that a lost answer had leased come back when the lease ends. work
        does it all."""
        body: Dict[str, Any] = {"max": max, "wait": _duration(wait)}
        if lease is not None:
            body["lease"] = _duration(lease)
        limit = wait + 60 if timeout is None else timeout
        r = Request("POST", path("topics", topic, "pull"), {}, body, timeout=limit, cancel=cancel)
        leases: List[t.Lease] = self.calls.json(r)["timers"]
        return leases

    def ack(self, receipts: Sequence[str], *, timeout: Optional[float] = None) -> List[t.ReceiptResult]:
        """Reports timers as done; twice is good. A result with the status 410 is of a lease that
        is over."""
        return self._report("ack", {"receipts": receipts}, timeout)

    def nack(
        self, receipts: Sequence[str], *, delay: Optional[float] = None, reason: str = "",
        timeout: Optional[float] = None,
    ) -> List[t.ReceiptResult]:
        """Reports timers as failed: they come again after the delay, or the topic's backoff. The
        reason shows as last_error. Where the answer to a nack was lost, its repetition finds the
        lease over: 410."""
        body: Dict[str, Any] = {"receipts": receipts}
        if delay is not None:
            body["delay"] = _duration(delay)
        if reason:
            body["reason"] = reason
        return self._report("nack", body, timeout)

    def extend(
        self, receipts: Sequence[str], lease: float, *, timeout: Optional[float] = None
    ) -> List[t.ReceiptResult]:
        """Makes the leases end that long from now."""
        return self._report("extend", {"receipts": receipts, "lease": _duration(lease)}, timeout)

    def work(
        self, topic: str, handle: Callable[[t.Lease, threading.Event], object], *, concurrency: int = 1,
        lease: float = 30.0, wait: float = 20.0, grace: float = 30.0, stop: Optional[threading.Event] = None,
        on_error: Callable[[BaseException], object] = lambda err: None,
    ) -> None:
        """Works on a pull topic: it pulls as many timers as it may handle at once, calls handle for
        each on a thread of its own, extends their leases meanwhile, and reports the end: an ack,
        or, of an exception, a nack with the delay of a RetryAfter or else the topic's backoff. While
        no node takes a report it is made again, until the lease is over.

        The event that a handler gets is set when its lease is over: somebody else may have the
        timer by then. Timers come at least once; fence is higher for a later lease. When stop is
        set it pulls no more, and returns when the handlers have, whose events are set after the
        grace. It raises, in the same way, what refuses a pull for good. on_error gets what does
        not end the work: a pull that is tried again, and a report that did not arrive or came
        too late.
        """
        stop = threading.Event() if stop is None else stop
        Worker(self, topic, handle, concurrency, lease, wait, grace, stop, on_error).run()

    # The cluster.

    def events(
        self, *, topic: Optional[str] = None, label: Union[str, Sequence[str]] = (), kind: Optional[str] = None
    ) -> Events:
        """What happens to timers, of all nodes, from now on: iterate over it, and close it."""
        return Events(self.calls, {"topic": topic, "label": label, "kind": kind})

    def cluster(self, *, timeout: Optional[float] = None) -> t.Cluster:
        """The cluster as a node sees it, in any state of the node."""
        cluster: t.Cluster = self._read(path("cluster"), timeout)
        return cluster

    def shard(self, n: int, *, timeout: Optional[float] = None) -> t.ShardDetail:
        """One shard as a node sees it."""
        shard: t.ShardDetail = self._read(path("cluster", "shards", str(n)), timeout)
        return shard

    def cluster_stats(self, *, timeout: Optional[float] = None) -> t.ClusterStats:
        """What each node did in the last minute."""
        stats: t.ClusterStats = self._read(path("cluster", "stats"), timeout)
        return stats

    def due(
        self, *, topic: Optional[str] = None, until: t.TimeOrText = None, buckets: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> t.Due:
        """How many timers come due from now on: a histogram."""
        due: t.Due = self._read(path("due"), timeout, {"topic": topic, "until": until, "buckets": buckets})
        return due

    def destinations(
        self, *, state: Optional[str] = None, timeout: Optional[float] = None
    ) -> Iterator[t.Destination]:
        """Goes through the receivers that the nodes call, those that are unwell first."""
        return self._pages(path("destinations"), "destinations", {"state": state}, timeout)

    def set_replicas(self, replicas: int, *, timeout: Optional[float] = None) -> None:
        """Changes how many replicas each shard should have. It returns when that is decided;
        making them takes longer."""
        body = {"replicas": replicas}
        self.calls.json(Request("PUT", path("cluster", "replicas"), {}, body, repeatable=True, timeout=timeout))

    def set_shards(self, shards: int, *, timeout: Optional[float] = None) -> None:
        """Lets the number of shards grow: to 2, 4, 8, … times as many as there are, at most
        4,096. It returns when that is decided; shards are then divided one after the other while
        they serve, as cluster() shows. There is no way back to fewer."""
        self.calls.json(Request("POST", path("cluster", "shards"), {}, {"shards": shards}, timeout=timeout))

    def preview_shards(self, shards: int, *, timeout: Optional[float] = None) -> t.ShardsNeed:
        """About what set_shards would need; it changes nothing."""
        request = Request("POST", path("cluster", "shards"), {"dry_run": "true"}, {"shards": shards}, repeatable=True, timeout=timeout)
        needs: t.ShardsNeed = self.calls.json(request)
        return needs

    def finalize_upgrade(self, *, timeout: Optional[float] = None) -> int:
        """Ends an upgrade: the release before cannot be started any more. Gives the feature
        level."""
        level: int = self._post(("cluster", "finalize"), None, repeatable=True, timeout=timeout)["feature_level"]
        return level

    def clock(self, *, timeout: Optional[float] = None) -> t.Clock:
        """The time of a node's test clock, which stands still: see carillon.testing. A node
        without one refuses with the code no_test_clock."""
        clock: t.Clock = self._read(path("clock"), timeout)
        return clock

    def advance(self, by: Union[str, timedelta], *, timeout: Optional[float] = None) -> t.ClockMoved:
        """Lets time pass by a test clock, such as "720h".
        All that becomes due on the way is
        called, in order. It ends when nothing that was due by then is left but what waits for
        somebody (a pause, a report or a pull, a breaker), or after 100,000 calls or a minute,
        which stopped says."""
        limit = _MOVE_LIMIT if timeout is None else timeout
        moved: t.ClockMoved = self._post(("clock",), {"advance": by}, timeout=limit)
        return moved

    def advance_to(self, to: Union[str, datetime], *, timeout: Optional[float] = None) -> t.ClockMoved:
        """Is advance to a time. One that is past is refused with the code clock_past."""
        limit = _MOVE_LIMIT if timeout is None else timeout
        moved: t.ClockMoved = self._post(("clock",), {"to": to}, repeatable=True, timeout=limit)
        return moved

    def drain_node(self, name: str, *, timeout: Optional[float] = None) -> t.NodeChange:
        """Has everything moved off a node, whose state is draining until that is done."""
        change: t.NodeChange = self._post(("cluster", "nodes", name, "drain"), None, repeatable=True, timeout=timeout)
        return change

    def resume_node(self, name: str, *, timeout: Optional[float] = None) -> t.NodeChange:
        """Takes a drain back, finished or not."""
        change: t.NodeChange = self._post(("cluster", "nodes", name, "resume"), None, repeatable=True, timeout=timeout)
        return change

    def remove_node(
        self, name: str, *, force: bool = False, accept_loss: bool = False, timeout: Optional[float] = None
    ) -> t.NodeChange:
        """Takes a node out of the cluster for good: one that is drained or down, or any with
        force. accept_loss allows a shard to be left without a majority of its replicas; what
        only the lost ones had is lost."""
        query = {"force": force or None, "accept_loss": accept_loss or None}
        r = Request("DELETE", path("cluster", "nodes", name), query, timeout=timeout)
        change: t.NodeChange = self.calls.json(r)
        return change

    def backup(self) -> Iterator[bytes]:
        """A backup of the whole cluster, as it comes. It counts only when it is whole: carillon
        ctl backup checks that."""
        stream = self.calls.open(Request("POST", path("backup")), _FOREVER)
        try:
            while True:
                chunk = stream.read()
                if not chunk:
                    return
                yield chunk
        finally:
            stream.close()

    def _timer(self, r: Request) -> t.Timer:
        timer: t.Timer = self.calls.json(r)
        return timer

    def _dry(self, r: Request) -> t.Timer:
        r.query, r.repeatable = _DRY_RUN, True
        return self._timer(r)

    def _topic(self, r: Request) -> t.Topic:
        topic: t.Topic = self.calls.json(r)
        return topic

    def _read(self, path: str, timeout: Optional[float], query: Optional[Dict[str, Any]] = None) -> Any:
        return self.calls.json(Request("GET", path, query or {}, repeatable=True, timeout=timeout))

    def _post(
        self, parts: Sequence[str], body: Any, query: Optional[Dict[str, Any]] = None, *, repeatable: bool = False,
        timeout: Optional[float] = None,
    ) -> Any:
        return self.calls.json(Request("POST", path(*parts), query or {}, body, repeatable=repeatable, timeout=timeout))

    def _many(self, parts: Sequence[str], body: Any, dry_run: bool, timeout: Optional[float]) -> Any:
        limit = _FOREVER if timeout is None else timeout
        return self._post(parts, body, _DRY_RUN if dry_run else None, repeatable=dry_run, timeout=limit)

    def _report(self, what: str, body: Any, timeout: Optional[float]) -> List[t.ReceiptResult]:
        # It is repeated: a receipt is of one lease, and does nothing to a later one.
        results: List[t.ReceiptResult] = self._post((what,), body, repeatable=True, timeout=timeout)["results"]
        return results

    def _pages(self, path: str, member: str, query: Dict[str, Any], timeout: Optional[float]) -> Iterator[Any]:
        cursor: Optional[str] = None
        while True:
            page = self._read(path, timeout, {**query, "limit": _PAGE, "cursor": cursor})
            yield from page[member]
            cursor = page.get("next_cursor")
            if not cursor:
                return


def _absolute(spec: t.Spec) -> bool:
    """Whether the time is an instant, so that repeating the spec asks for the same."""
    return "at" in spec or "at_ms" in spec or "at_local" in spec


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def _of_timer(
    method: str, topic: str, id: str, if_match: int, timeout: Optional[float], body: Any = None
) -> Request:
    headers = {"If-Match": f'"{if_match}"'} if if_match else {}
    return Request(method, path("topics", topic, "timers", id), {}, body, headers, topic, id, timeout=timeout)


def _of_topic(
    method: str, topic: str, if_match: str, force: bool, timeout: Optional[float], body: Any = None, dry_run: bool = False
) -> Request:
    headers = {"If-Match": f'"{if_match}"'} if if_match else {}
    query = {"force": force or None, "dry_run": dry_run or None}
    return Request(method, path("topics", topic), query, body, headers, timeout=timeout)
