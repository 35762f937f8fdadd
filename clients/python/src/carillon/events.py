"""The stream of events."""

from __future__ import annotations

import json
import threading
from typing import Any, Iterator, List, Literal, Mapping, Optional, TypedDict

from .calls import Calls, Cancel, Request, path
from .errors import Error, Unanswered, refused_for_good

_SILENCE = 45.0  # seconds; a node sends something every 15
_MAX_EVENT = 1 << 20  # bytes


class _Event(TypedDict):
    kind: str
    """fired, dead, added, changed, cancelled, breaker, node, shards; or missed: events were left out."""


class Event(_Event, total=False):
    """Something that happened to a timer, or, of breaker, node and shards, to these."""

    node: str
    at: str
    at_ms: int
    topic: str
    id: str
    labels: List[str]
    due: str
    due_ms: int
    attempt: int
    """Of fired, as result, status, late_ms and next_attempt."""
    result: Literal["success", "retry", "dead", "cancelled"]
    status: int
    late_ms: int
    next_attempt: str
    next_attempt_ms: int
    error: str
    reason: str
    missed: int
    """Of missed: how many, where that is known."""
    destination: str
    state: str
    """Of breaker, node and shards; of the latter: begins, divided, done."""
    to: int
    """Of shards, as from and done: how many there will be, were, and how many new ones are made."""
    done: int
    shard: int
    """Of shards that are divided: the new one."""


class Events:
    """Events from now on, until it is closed, which any thread may do. It is for looking on:
    events while no node is connected are lost. A broken connection is an event of the kind
    missed, with its error, and the next node is asked. Iterating raises a refusal."""

    def __init__(self, calls: Calls, query: Mapping[str, Any]) -> None:
        self._calls, self._query = calls, query
        self._closed = threading.Event()
        self._cancel = Cancel()

    def close(self) -> None:
        self._closed.set()
        self._cancel.cancel()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        failed = 0
        while not self._closed.is_set():
            try:
                for event in self._connected():
                    failed = 0
                    yield event
                failure: Error = Unanswered("carillon: the stream of events has ended")
            except Error as err:
                failure = err
            if self._closed.is_set():
                return
            if refused_for_good(failure):
                raise failure
            yield {"kind": "missed", "error": str(failure)}
            self._closed.wait(self._calls.pause(failure, failed))
            failed += 1

    def _connected(self) -> Iterator[Event]:
        """The events of one connection."""
        stream = self._calls.open(Request("GET", path("events"), self._query, cancel=self._cancel), _SILENCE)
        try:
            rest, kind = b"", ""
            while True:
                chunk = stream.read()
                if not chunk:
                    stream.pass_over()
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > _MAX_EVENT:
                    raise Unanswered("carillon: an event is too long")
                for line in lines:
                    name, _, value = line.decode().partition(": ")
                    if name == "event":
                        kind = value
                    elif name == "data":
                        event: Event = json.loads(value)
                        event["kind"] = kind
                        yield event
        finally:
            stream.close()
