"""A worker of a pull topic."""

from __future__ import annotations

import threading
import time
import traceback
from typing import TYPE_CHECKING, Callable, Dict, List, Optional

from .calls import Cancel
from .errors import Error, Problem, refused_for_good
from .receiver import RetryAfter
from .types import Lease, ReceiptResult

if TYPE_CHECKING:
    from .client import Client

MAX_CONCURRENCY = 1000  # receipts in one extension
_MAX_REASON = 1024  # bytes
_TICK = 0.1  # seconds between looks at stop


class _Hold:
    """A lease whose handler runs."""

    def __init__(self, until: float) -> None:
        self.until = until  # by this process's clock: the lease is good until then without another word
        self.lost = threading.Event()


class Worker:
    """One run of Client.work."""

    def __init__(
        self, client: Client, topic: str, handle: Callable[[Lease, threading.Event], object], concurrency: int,
        lease: float, wait: float, grace: float, stop: threading.Event, on_error: Callable[[BaseException], object],
    ) -> None:
        if not 1 <= concurrency <= MAX_CONCURRENCY:
            raise ValueError(f"carillon: a concurrency of {concurrency} is not 1 to {MAX_CONCURRENCY}")
        self._client, self._topic, self._handle, self._concurrency = client, topic, handle, concurrency
        self._lease, self._wait, self._grace, self._stop, self._on_error = lease, wait, grace, stop, on_error
        self._changed = threading.Condition()  # guards what follows
        self._running = 0  # handlers, at most concurrency
        self._held: Dict[str, _Hold] = {}  # by receipt
        self._pulling: Optional[Cancel] = None
        self._grace_over = threading.Event()

    def run(self) -> None:
        ended = threading.Event()
        threads = [threading.Thread(target=part, args=(ended,), daemon=True) for part in (self._watch, self._extend)]
        for thread in threads:
            thread.start()
        try:
            self._pull()
        finally:
            self._finish()
            ended.set()
            for thread in threads:
                thread.join()

    def _pull(self) -> None:
        failed = 0
        while True:
            with self._changed:
                while self._running >= self._concurrency and not self._stop.is_set():
                    self._changed.wait(_TICK)
                if self._stop.is_set():
                    return
                free = self._concurrency - self._running
                self._pulling = Cancel()
            try:
                leases = self._client.pull(
                    self._topic, max=free, wait=self._wait, lease=self._lease, timeout=self._wait + 60,
                    cancel=self._pulling,
                )
            except Error as err:
                if self._stop.is_set():
                    return
                if refused_for_good(err):
                    raise
                self._on_error(err)
                self._stop.wait(self._client.calls.pause(err, failed))
                failed += 1
                continue
            failed = 0
            for lease in leases:
                with self._changed:
                    self._running += 1
                    hold = self._held[lease["receipt"]] = _Hold(time.monotonic() + self._lease)
                threading.Thread(target=self._run, args=(lease, hold), daemon=True).start()

    def _watch(self, ended: threading.Event) -> None:
        """Ends a pull that waits when the worker is to stop."""
        while not ended.wait(_TICK):
            if self._stop.is_set():
                with self._changed:
                    if self._pulling:
                        self._pulling.cancel()
                    self._changed.notify_all()

    def _run(self, lease: Lease, hold: _Hold) -> None:
        """Handles a timer and reports how that ended."""
        receipt, failure = lease["receipt"], None
        try:
            self._handle(lease, hold.lost)
        except BaseException as err:  # whatever a handler raises is its failure, a CancelledError too
            failure = err
        with self._changed:
            del self._held[receipt]
        try:
            if self._report(receipt, failure)[0]["status"] != 200:
                raise Problem(410, {"code": "over", "detail": "the lease is over"})
        except Error as err:
            self._on_error(err)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _report(self, receipt: str, failure: Optional[BaseException]) -> List[ReceiptResult]:
        """Reports until that succeeds, and once when the grace is over. When the lease is over it
        is of no use. A node that is silent leaves time for another."""
        until = time.monotonic() + self._lease
        delay = max(failure.delay, 0.0) if isinstance(failure, RetryAfter) else None
        failed = 0
        while True:
            left = min(until - time.monotonic(), self._lease / 3)
            try:
                if failure is None:
                    return self._client.ack([receipt], timeout=left)
                return self._client.nack([receipt], delay=delay, reason=_reason(failure), timeout=left)
            except Error as err:
                pause = self._client.calls.pause(err, failed)
                late = time.monotonic() + pause >= until
                if refused_for_good(err) or late or self._grace_over.wait(pause):
                    raise
            failed += 1

    def _extend(self, ended: threading.Event) -> None:
        """Holds the leases whose handlers run, all in one call. It gives up those that are over."""
        every = self._lease / 3
        while not ended.wait(every):
            asked, results = time.monotonic(), []  # type: float, List[ReceiptResult]
            with self._changed:
                held = dict(self._held)
            receipts = [receipt for receipt, hold in held.items() if asked < hold.until]
            for hold in held.values():
                if asked >= hold.until:
                    hold.lost.set()
            if not receipts:
                continue
            try:
                results = self._client.extend(receipts, self._lease, timeout=every)
            except Error as err:
                try:
                    self._on_error(err)
                except Exception:  # the other leases are held on to
                    traceback.print_exc()
            for result in results:
                hold = held[result["receipt"]]
                if result["status"] == 200:
                    hold.until = asked + self._lease
                else:
                    hold.until = asked  # not asked for again
                    hold.lost.set()

    def _finish(self) -> None:
        """Waits for the handlers. Those that run longer than the grace lose their leases."""
        with self._changed:
            self._changed.wait_for(lambda: self._running == 0, self._grace)
            self._grace_over.set()
            for hold in self._held.values():
                hold.lost.set()
            self._changed.wait_for(lambda: self._running == 0)


def _reason(failure: BaseException) -> str:
    text = str(failure) or type(failure).__name__
    return text.encode("utf-8", "replace")[:_MAX_REASON].decode("utf-8", "ignore")
