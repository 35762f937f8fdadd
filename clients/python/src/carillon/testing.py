"""Starts a node for a test, with a clock that stands still until the test moves it: a year passes in
less than a second, and all that is due in it is called, in order."""

from __future__ import annotations

import atexit
import os
import queue
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from datetime import datetime, timedelta
from typing import IO, Optional, Sequence, Union

from . import types as t
from .client import Client

# Far more than a node takes, in seconds, because the machine may be busy.
_START_LIMIT = 60
_STOP_LIMIT = 30


class TestNode:
    """A node that runs until stop, or the end of a with statement. at is when its clock begins
    (now), flags are more flags of carillon serve, and binary is the program: that of CARILLON_BIN,
    or else carillon on the PATH."""

    __test__ = False  # for pytest: it is no test

    def __init__(
        self, at: Union[str, datetime] = "now", *, flags: Sequence[str] = (), binary: Optional[str] = None
    ) -> None:
        program = binary or os.environ.get("CARILLON_BIN") or shutil.which("carillon")
        if program is None:
            raise FileNotFoundError("there is no carillon on the PATH: install it, or name the binary in CARILLON_BIN")
        begin = at if isinstance(at, str) else at.isoformat()
        self._dir = tempfile.mkdtemp(prefix="carillon-test-")
        self._log = open(os.path.join(self._dir, "log"), "w+", encoding="utf-8")
        args = [program, "serve", "--data", os.path.join(self._dir, "data"), "--http", "127.0.0.1:0", "--test-clock", begin, *flags]
        env = {k: v for k, v in os.environ.items() if not k.startswith("CARILLON_")}
        try:
            self._process = subprocess.Popen(args, env=env, stdout=subprocess.PIPE, stderr=self._log, text=True)
        except OSError:
            self._remove()
            raise
        atexit.register(self._end)
        assert self._process.stdout
        ready: queue.Queue[Optional[str]] = queue.Queue()
        threading.Thread(target=_read, args=(self._process.stdout, ready), daemon=True).start()
        try:
            url, why = ready.get(timeout=_START_LIMIT), "the node did not start: "
        except queue.Empty:
            url, why = None, f"the node was not ready within {_START_LIMIT} s: "
        if url is None:
            self._log.seek(0)
            why += self._log.read()
            self._end()
            raise RuntimeError(why)
        self.url = url
        self.client = Client(self.url)

    def now(self) -> datetime:
        """The time of its clock."""
        return datetime.fromisoformat(self.client.clock()["now"].replace("Z", "+00:00"))

    def advance(self, by: Union[str, timedelta]) -> t.ClockMoved:
        """Lets time pass: all that becomes due is called, in order. It returns when nothing is left
        of it but what waits for somebody."""
        moved = self.client.advance(by)
        if moved.get("stopped"):
            raise RuntimeError(f"the clock stopped at {moved['now']}: advance in smaller steps, or use to")
        return moved

    def to(self, time: Union[str, datetime]) -> t.ClockMoved:
        """Is advance to a time. It fails if that does not end, because each call adds a timer that
        is due at once: then the clock stops twice at one time."""
        calls, last = 0, ""
        while True:
            moved = self.client.advance_to(time)
            calls += moved["calls"]
            if not moved.get("stopped"):
                moved["calls"] = calls
                return moved
            if moved["now"] == last:
                raise RuntimeError(f"the clock stands still at {last}, after {calls} calls: more and more is due at that time")
            last = moved["now"]

    def stop(self) -> None:
        """Stops the node and removes its directory."""
        self.client.close()
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_STOP_LIMIT)
        except subprocess.TimeoutExpired:
            pass
        self._end()

    def _end(self) -> None:
        """Kills the process if it still runs: its program may end without a stop."""
        atexit.unregister(self._end)
        self._process.kill()
        self._process.wait()
        self._remove()

    def _remove(self) -> None:
        self._log.close()
        shutil.rmtree(self._dir, ignore_errors=True)

    def __enter__(self) -> TestNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _read(out: IO[str], ready: queue.Queue[Optional[str]]) -> None:
    """Reads what a process writes, so that it never waits for a reader. ready gets its URL once it
    is ready, and None at its end."""
    with out:
        for line in out:
            found = re.search("ready on ([^,]+),", line)
            if found:
                ready.put(found.group(1))
    ready.put(None)
