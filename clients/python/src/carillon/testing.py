"""Starts a node for a test, with a clock that stands still until the test moves it: a year passes in
less than a second, and all that is due in it is called, in order."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from datetime import datetime, timedelta
from typing import Optional, Sequence, Union

from . import types as t
from .client import Client


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
        assert self._process.stdout
        for line in self._process.stdout:
            found = re.search("ready on ([^,]+),", line)
            if found:
                break
        else:
            self._process.wait()
            self._log.seek(0)
            log = self._log.read()
            self._process.stdout.close()
            self._remove()
            raise RuntimeError("the node did not start: " + log)
        self.url = found.group(1)
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
        """Is advance to a time."""
        calls = 0
        while True:
            moved = self.client.advance_to(time)
            calls += moved["calls"]
            if not moved.get("stopped"):
                moved["calls"] = calls
                return moved

    def stop(self) -> None:
        """Stops the node and removes its directory."""
        self.client.close()
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._remove()

    def _remove(self) -> None:
        self._log.close()
        shutil.rmtree(self._dir, ignore_errors=True)

    def __enter__(self) -> TestNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
