"""A node with a test clock."""

from __future__ import annotations

import threading
import unittest
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, List

from carillon import Client, Problem
from carillon.testing import TestNode
from nodes import BINARY, Node


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

    def test_a_node_that_does_not_start(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "test-clock"):
            TestNode(binary=BINARY, flags=["--join", "127.0.0.1:1"])
