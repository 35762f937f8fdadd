"""A node with a test clock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Dict, Iterator, List
from unittest.mock import patch

from carillon import Client, Problem
from carillon.testing import TestNode
from nodes import BINARY, FakeNode, Node


class TestClock(unittest.TestCase):
    def test_a_year_passes(self) -> None:
        calls: List[str] = []

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                calls.append(self.headers["Carillon-Test-Clock"])
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        with HTTPServer(("127.0.0.1", 0), Receiver) as receiver, TestNode(datetime(2026, 1, 1, tzinfo=timezone.utc), binary=BINARY) as node:
            threading.Thread(target=receiver.serve_forever, daemon=True).start()
            node.client.add("renewals", {
                "id": "member-9", "repeat": {"cron": "0 9 28 * *", "zone": "Europe/Berlin"},
                "callback": {"url": f"http://127.0.0.1:{receiver.server_port}/"},
            })
            self.assertEqual(node.advance(timedelta(days=59))["calls"], 2)
            moved = node.to("2027-01-01T00:00:00Z")
            self.assertEqual((moved["calls"], moved["left"]), (10, 0))
            self.assertEqual(node.now(), datetime(2027, 1, 1, tzinfo=timezone.utc))
            self.assertEqual(calls[2:4], ["2026-03-28T08:00:00Z", "2026-04-28T07:00:00Z"])
            with self.assertRaises(Problem) as past:
                node.client.advance_to("2026-06-01T00:00:00Z")
            self.assertEqual(past.exception.code, "clock_past")
            self.assertTrue(node.client.cluster()["test_clock"])
            receiver.shutdown()

    def test_a_node_without_one(self) -> None:
        node = Node().ready()
        try:
            with Client(node.url) as carillon, self.assertRaises(Problem) as none:
                carillon.clock()
            self.assertEqual(none.exception.code, "no_test_clock")
        finally:
            node.kill()

    def test_a_clock_that_stands_still(self) -> None:
        def stopped(now: str) -> Dict[str, Any]:
            return {"body": {"now": now, "calls": 100_000, "left": 1, "stopped": True}}

        first, second = stopped("2026-01-01T00:00:00Z"), stopped("2026-01-02T00:00:00Z")
        last = {"body": {"now": "2026-02-01T00:00:00Z", "calls": 7, "left": 0}}
        fake = FakeNode(first, second, last)
        try:
            with script(f"echo 'ready on {fake.url}, with a test clock'; exec sleep 60") as binary, TestNode(binary=binary) as node:
                self.assertEqual(node.to("2026-02-01T00:00:00Z")["calls"], 200_007)
                fake.replies = [first, second, second, last]
                with self.assertRaisesRegex(RuntimeError, "2026-01-02T00:00:00Z, after 300000 calls"):
                    node.to("2026-02-01T00:00:00Z")
        finally:
            fake.close()

    def test_a_node_that_does_not_start(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "test-clock"):
            TestNode(binary=BINARY, flags=["--join", "127.0.0.1:1"])

    def test_a_node_that_is_never_ready(self) -> None:
        with script("echo it waits >&2; echo $$ > \"$0.pid\"; exec sleep 60") as binary:
            with patch("carillon.testing._START_LIMIT", 1), self.assertRaisesRegex(RuntimeError, "not ready within 1 s: it waits"):
                TestNode(binary=binary)
            self.assertFalse(runs(binary))

    def test_a_node_that_does_not_stop(self) -> None:
        with script("trap '' INT; echo $$ > \"$0.pid\"; echo 'ready on http://127.0.0.1:1, it is deaf'; exec sleep 60") as binary:
            node = TestNode(binary=binary)
            self.assertTrue(runs(binary))
            with patch("carillon.testing._STOP_LIMIT", 0.2):
                node.stop()
            self.assertFalse(runs(binary))

    def test_a_program_that_ends_without_a_stop(self) -> None:
        program = "import sys; from carillon.testing import TestNode; print(TestNode(binary=sys.argv[1])._dir)"
        with script("echo $$ > \"$0.pid\"; echo 'ready on http://127.0.0.1:1, it runs'; exec sleep 60") as binary:
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            done = subprocess.run([sys.executable, "-c", program, binary], env=env, stdout=subprocess.PIPE, text=True, timeout=30, check=True)
            self.assertFalse(runs(binary))
            self.assertFalse(os.path.exists(done.stdout.strip()))


@contextmanager
def script(text: str) -> Iterator[str]:
    """A program that is run instead of a node. It may write its process into a file .pid beside it."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "carillon")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text + "\n")
        os.chmod(path, 0o700)
        try:
            yield path
        finally:
            if runs(path):
                os.kill(pid(path), signal.SIGKILL)


def pid(path: str) -> int:
    with open(path + ".pid", encoding="utf-8") as file:
        return int(file.read())


def runs(path: str) -> bool:
    """Whether the process of a script runs."""
    if not os.path.exists(path + ".pid"):
        return False
    try:
        os.kill(pid(path), 0)
    except ProcessLookupError:
        return False
    return True
