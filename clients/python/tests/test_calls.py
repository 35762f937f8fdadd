"""Which call goes where, and which is made again: against nodes that only answer as they are
asked to."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
import unittest
from contextlib import contextmanager, redirect_stderr
from datetime import datetime, timedelta, timezone
from io import StringIO
from typing import Any, Iterator, List, Tuple

from carillon import Client, Problem, RetryAfter, Unanswered, shard_of
from carillon.calls import encode
from nodes import ROOT, FakeNode, Server, free_address, problem

TIMER = {"body": {"topic": "o", "id": "a", "state": "scheduled", "timers": [], "results": [], "outcome": "prevented", "cancelled": 0}}
AT = "2030-01-01T00:00:00Z"


@contextmanager
def using(*replies: Any, **options: Any) -> Iterator[Tuple[Any, ...]]:
    nodes = [FakeNode(*r) for r in replies]
    client = Client([node.url for node in nodes], **options)
    try:
        yield (client, *nodes)
    finally:
        client.close()
        for node in nodes:
            node.close()


class Calls(unittest.TestCase):
    def test_safe_calls_are_repeated_and_no_others(self) -> None:
        calls = [
            (True, lambda c: c.get("o", "a")),
            (True, lambda c: c.add("o", {"id": "a", "at": AT, "merge": "reject"})),
            (True, lambda c: c.add("o", {"id": "a", "at_local": "2030-01-01T00:00:00", "zone": "UTC", "merge": "reject"})),
            (True, lambda c: c.add("o", {"delay": "1s"}, idempotency_key="k")),
            (True, lambda c: c.add("o", {"id": "a", "delay": "1s", "part": "p"})),
            (False, lambda c: c.add("o", {"id": "a", "delay": "1s"})),
            (False, lambda c: c.add("o", {"at": AT})),
            (False, lambda c: c.add("o", {"id": "a", "at": AT, "merge": "replace"})),
            (False, lambda c: c.add("o", {"id": "a", "at": AT, "repeat": {"every": "1h"}})),
            (True, lambda c: c.dry_add("o", {"delay": "1s"})),
            (True, lambda c: c.put("o", "a", {"at": AT})),
            (True, lambda c: c.put("o", "a", {"at": AT, "repeat": {"every": "1h"}})),
            (False, lambda c: c.put("o", "a", {"at": AT, "repeat": {"every": "1h", "count": 3}})),
            (False, lambda c: c.put("o", "a", {"delay": "1s"})),
            (False, lambda c: c.put("o", "a", {"at": AT}, if_match=3)),
            (False, lambda c: c.put("o", "a", {"at": AT}, create_only=True)),
            (False, lambda c: c.patch("o", "a", {"priority": 3})),
            (True, lambda c: c.cancel("o", "a")),
            (False, lambda c: c.cancel("o", "a", if_match=3)),
            (False, lambda c: c.fire("o", "a")),
            (False, lambda c: c.batch("o", [])),
            (True, lambda c: c.ack(["r"])),
            (True, lambda c: c.nack(["r"])),
            (True, lambda c: c.extend(["r"], 1)),
            (False, lambda c: c.pull("o")),
            (True, lambda c: c.put_topic("o", {})),
            (False, lambda c: c.put_topic("o", {}, if_match="7-3")),
            (False, lambda c: c.patch_topic("o", {})),
            (False, lambda c: c.delete_topic("o")),
            (False, lambda c: c.rotate_secret("o")),
            (True, lambda c: c.rotate_secret("o", "whsec_x")),
            (False, lambda c: c.cancel_all("o", {"all": True})),
            (True, lambda c: c.cancel_all("o", {"all": True}, dry_run=True)),
            (True, lambda c: c.drain_node("n")),
            (False, lambda c: c.remove_node("n")),
        ]
        with using([TIMER]) as (client, node):
            for n, (repeated, call) in enumerate(calls):
                for trouble in [{"cut": True}] + ([problem(503, "no_leader"), problem(429, "quota")] if n == 0 else []):
                    node.replies, node.seen = [trouble, TIMER], []
                    try:
                        call(client)
                        made = True
                    except (Problem, Unanswered):
                        made = False
                    self.assertEqual((made, len(node.seen)), (True, 2) if repeated else (False, 1), f"call {n} after {trouble}")

    def test_an_add_that_its_topic_may_merge_is_not_repeated(self) -> None:
        cut = {"cut": True}

        def policy(merge: str) -> Any:
            return {"body": {"topic": "o", "policy": {"merge": merge}}}

        for replies, asked, good in [
            ([TIMER], "P", True),
            ([cut, policy("reject"), TIMER], "PGP", True),
            ([cut, policy("reject"), cut, policy("collect"), TIMER], "PGPG", False),
            *(([cut, policy(merge), TIMER], "PG", False) for merge in ("keep", "replace", "debounce", "collect")),
            ([cut, {"body": {}}, TIMER], "PG", False),
            ([cut, {"body": b"<html>"}, TIMER], "PG", False),
            ([cut, problem(404, "unknown_topic"), TIMER], "PGP", True),
            ([cut, {"status": 404, "body": b"<html>"}, TIMER], "PG", False),
            ([cut, problem(403, "forbidden"), TIMER], "PG", False),
            ([cut, problem(503, "no_leader"), cut, policy("reject"), TIMER], "PGGGP", True),
            ([cut], "PGGG", False),
            ([problem(503, "unavailable"), policy("collect"), TIMER], "PG", False),
            ([{"status": 503, "body": b"<html>"}, policy("collect"), TIMER], "PG", False),
            *(([problem(503, code), TIMER], "PP", True) for code in ("no_leader", "overloaded", "low_disk")),
            ([problem(429, "quota"), TIMER], "PP", True),
        ]:
            with self.subTest(asked=asked, replies=replies), using(list(replies), retries=2) as (client, node):
                made, status = True, 0
                try:
                    client.add("o", {"id": "a", "at": AT})
                except (Problem, Unanswered) as err:
                    made, status = False, getattr(err, "status", 0)
                self.assertEqual(("".join(seen[0][0] for seen in node.seen), made), (asked, good))
                self.assertEqual(status, 0 if made else replies[0].get("status", 0), "it is not the error of the add")
                self.assertEqual({seen[1] for seen in node.seen if seen[0] == "GET"}, {"/v1/topics/o"} if "G" in asked else set())

    def test_an_add_waits_no_longer_for_the_policy_than_for_all(self) -> None:
        with socket.socket() as silent, using([{"cut": True}]) as (_, node):
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            began = time.monotonic()
            with Client([node.url, f"http://127.0.0.1:{silent.getsockname()[1]}"], timeout=0.5) as client:
                with self.assertRaisesRegex(Unanswered, "POST /v1/topics/o/timers"):
                    client.add("o", {"id": "a", "at": AT})
            self.assertLess(time.monotonic() - began, 5)
            self.assertEqual(len(node.seen), 1)

    def test_an_add_that_was_never_sent_is_repeated(self) -> None:
        with Client("http://" + free_address(), retries=2) as client:
            sent, send = [], client.calls._send

            def record(r: Any, timeout: Any) -> Any:
                sent.append(r.method)
                return send(r, timeout)

            client.calls._send = record  # type: ignore[method-assign, assignment]
            with self.assertRaises(Unanswered):
                client.add("o", {"id": "a", "at": AT})
            self.assertEqual(sent, ["POST"] * 3)

    def test_repetitions_end(self) -> None:
        with using([problem(503, "overloaded")], retries=2) as (client, node):
            with self.assertRaises(Problem) as raised:
                client.get("o", "a")
            self.assertEqual((raised.exception.code, raised.exception.retryable, len(node.seen)), ("overloaded", True, 3))
        with using([problem(503, "overloaded", {"Retry-After": "7"})]) as (client, node):
            began = time.monotonic()
            with self.assertRaises(Problem) as raised:
                client.get("o", "a", timeout=2)
            self.assertEqual((raised.exception.retry_after, len(node.seen)), (7, 1))
            self.assertLess(time.monotonic() - began, 1.5, "it waited for what cannot come in time")
        with using([problem(503, "overloaded", {"Retry-After": "60"}), TIMER], max_wait=0.3) as (client, _):
            began = time.monotonic()
            client.get("o", "a")
            self.assertGreater(time.monotonic() - began, 0.29, "it did not wait as long as it was asked to")

    def test_a_silent_node_is_left_in_time(self) -> None:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            with Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2) as client:
                with self.assertRaises(Unanswered):
                    client.get("o", "a")

    def test_an_answer_that_trickles_is_left_in_time(self) -> None:
        for head in (
            b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n", b"HTTP/1.1 503 No\r\nContent-Length: 10000\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nX-Endless: ", b"HTTP/1.1 ",
        ):
            over = threading.Event()

            def trickle(handler: Any, _: bytes) -> None:
                handler.wfile.write(head)
                until = time.monotonic() + 5
                try:
                    while not over.wait(0.05) and time.monotonic() < until:
                        handler.wfile.write(b" ")
                except OSError:
                    pass  # the client has gone

            server = Server(trickle)
            try:
                with Client(server.url, timeout=0.5, retries=0) as client:
                    began = time.monotonic()
                    with self.assertRaises(Unanswered):
                        client.get("o", "a")
                    self.assertLess(time.monotonic() - began, 3, head)
            finally:
                over.set()
                server.close()

    def test_the_next_node_is_given_any_call_that_no_node_has_seen(self) -> None:
        nobody = "http://" + free_address()
        with using([TIMER]) as (_, node):
            client = Client([nobody, node.url], retries=0)
            for n in range(1, 4):
                client.fire("o", "a")
                self.assertEqual(len(node.seen), n)
            client.close()
            with self.assertRaises(Unanswered):
                Client([nobody, nobody], retries=0).fire("o", "a")

    def test_a_connection_that_the_node_has_closed_is_not_used_again(self) -> None:
        with using([{**TIMER, "then_close": True}], retries=0) as (client, node):
            for n in range(1, 4):
                client.fire("o", "a")
                self.assertEqual(len(node.seen), n)
                self.assertTrue(node.closed.acquire(timeout=10))

    def test_half_an_answer_is_none(self) -> None:
        for half in ({**TIMER, "break_off": True}, {**problem(409, "exists"), "break_off": True}):
            with using([half, TIMER]) as (client, node):
                client.get("o", "a")
                self.assertEqual(len(node.seen), 2, "it is not repeated")
                node.replies = [half]
                with self.assertRaisesRegex(Unanswered, "POST /v1/topics/o/timers/a/fire"):
                    client.fire("o", "a")

    def test_an_answer_that_is_no_json_is_none(self) -> None:
        with using([{"body": b"<html>"}]) as (client, node):  # as of a proxy's page
            with self.assertRaisesRegex(Unanswered, "GET /v1/topics/o/timers/a: the answer cannot be read"):
                client.get("o", "a")
            self.assertEqual(len(node.seen), 1)

    def test_a_worker_goes_on_after_answers_that_are_none(self) -> None:
        broken = {**TIMER, "break_off": True}, {"body": b"<html>"}
        errors: List[BaseException] = []
        stop = threading.Event()

        def note(err: BaseException) -> None:
            errors.append(err)
            if len(errors) == len(broken):
                stop.set()

        with using([*broken]) as (client, _):
            client.work("o", lambda lease, lost: None, wait=0, stop=stop, on_error=note)
        self.assertEqual([isinstance(err, Unanswered) for err in errors], [True, True])
        self.assertIn("POST /v1/topics/o/pull: the answer cannot be read", str(errors[1]))

    def test_a_workers_handler_may_end_by_any_exception(self) -> None:
        stop = threading.Event()

        def handle(lease: Any, lost: threading.Event) -> None:
            stop.set()
            raise asyncio.CancelledError("as of a task that was cancelled")

        lease = {"id": "a", "receipt": "r", "status": 200}
        with using([{"body": {"timers": [lease], "results": [lease]}}]) as (client, node):
            working = threading.Thread(target=client.work, args=("o", handle), kwargs={"grace": 0.1, "stop": stop}, daemon=True)
            working.start()
            working.join(10)
            self.assertFalse(working.is_alive(), "it waits for a handler that has ended")
            self.assertEqual([seen[1] for seen in node.seen], ["/v1/topics/o/pull", "/v1/nack"])

    def test_a_worker_reports_until_the_lease_is_over(self) -> None:
        lease = {"id": "a", "receipt": "r", "status": 200}
        done, refused = {"body": {"timers": [lease], "results": [lease]}}, problem(503, "unavailable")
        for seconds, grace, replies, reports in (
            (30, 30, [done, *[refused] * 3, done], 4), (0.3, 30, [done, refused], 2), (3600, 0.3, [done, refused], 2),
        ):
            stop, errors = threading.Event(), []  # type: threading.Event, List[BaseException]

            def fails(_: Any, lost: threading.Event) -> None:
                stop.set()
                raise RetryAfter(3600, "later")

            with using(replies, retries=0) as (client, node):
                began = time.monotonic()
                client.work("o", fails, lease=seconds, wait=0, grace=grace, stop=stop, on_error=errors.append)
            sent = [body for _, path, _, body in node.seen if path == "/v1/nack"]
            self.assertGreaterEqual(len(sent), reports)
            self.assertIn(b'"delay":"3600', sent[-1])
            self.assertEqual(len(errors), 0 if seconds == 30 else 1)
            self.assertLess(time.monotonic() - began, 5, "it reports for longer than the lease or the grace lasts")

    def test_a_workers_leases_are_held_on_to_after_an_on_error_that_fails(self) -> None:
        stop, extended = threading.Event(), threading.Event()
        lease = {"id": "a", "receipt": "r", "status": 200}

        def handle(_: Any, lost: threading.Event) -> None:
            until = time.monotonic() + 10
            while len(node.seen) < 3 and time.monotonic() < until:
                time.sleep(0.01)
            if len(node.seen) >= 3:
                extended.set()
            stop.set()

        def fails(err: BaseException) -> None:
            raise RuntimeError("no place for it")

        with using([{"body": {"timers": [lease], "results": [lease]}}, problem(404, "not_found"), {"body": {"results": [lease]}}]) as (client, node):
            with redirect_stderr(StringIO()) as printed:
                client.work("o", handle, lease=1, wait=0, stop=stop, on_error=fails)
        self.assertIn("no place for it", printed.getvalue())
        self.assertTrue(extended.is_set(), [seen[1] for seen in node.seen])

    def test_calls_go_to_the_leader_that_an_answer_has_named(self) -> None:
        with using([TIMER], [TIMER], [TIMER]) as (_, first, leader, stranger):
            client = Client([first.url, leader.url], token=" crl_x\n", retries=0)
            shard = shard_of("o", "a", 4)
            other = next(f"t{n}" for n in range(50) if shard_of("o", f"t{n}", 4) != shard)

            def hint(text: str) -> Any:
                return {**TIMER, "headers": {"Carillon-Leader": text}}

            def asked(*want: int) -> None:
                self.assertEqual(tuple(len(n.seen) for n in (first, leader, stranger)), want)

            first.replies = [hint(f'"{leader.host}";shard={shard};shards=4'), TIMER]
            client.get("o", "a")
            asked(1, 0, 0)
            client.get("o", "a")
            asked(1, 1, 0)
            client.get("o", other)
            asked(2, 1, 0)
            client.add("o", {"key": "a", "delay": "1s"})
            asked(2, 2, 0)
            client.add("o", {"delay": "1s"})
            asked(3, 2, 0)
            leader.replies = [problem(503, "no_leader"), TIMER]
            with self.assertRaises(Problem):
                client.get("o", "a")
            client.get("o", "a")  # not known any more
            asked(4, 3, 0)
            for text in [f'"{stranger.host}";shard={shard};shards=4', "", '"', f'"{leader.host}";shard=9;shards=4', f'"{leader.host}";shards=4;shard=1']:
                first.replies = [hint(text)]
                client.get("o", "a")
            asked(9, 3, 0)
            self.assertEqual(first.seen[0][2]["Authorization"], "Bearer crl_x")
            client.close()

    def test_shards_are_found_as_nodes_find_them(self) -> None:
        lines = (ROOT / "clients/testdata/shards.txt").read_text().splitlines()
        self.assertGreaterEqual(len(lines), 100)
        for line in lines:
            topic, id, shards, want = line.split()
            self.assertEqual(shard_of(topic, id, int(shards)), int(want), line)

    def test_errors_say_what_was_answered(self) -> None:
        existing = {"version": 3, "state": "leased", "due": AT, "due_ms": 1893456000000}
        body = {"status": 409, "code": "in_flight", "title": "Conflict", "detail": "a call is running", "existing": existing}
        with using([{"status": 409, "body": body}]) as (client, _):
            with self.assertRaises(Problem) as raised:
                client.fire("o", "a")
            err = raised.exception
            self.assertEqual((err.status, err.code, err.existing, str(err)), (409, "in_flight", existing, "carillon: a call is running (409 in_flight)"))
        with using([{"status": 410, "body": {"code": "over", "detail": "too late", "outcome": "already_fired"}}]) as (client, _):
            with self.assertRaisesRegex(Problem, "too late .410 over.: already fired") as raised:
                client.cancel("o", "a")
            self.assertEqual(raised.exception.outcome, "already_fired")
        for reply, text in [
            ({"status": 502, "body": b"<html>"}, "502.*no explanation that a node gives: b'<html>'"),
            ({"status": 302, "headers": {"Location": "https://elsewhere"}}, "to https://elsewhere, which is not followed"),
            ({"status": 500, "body": b"null"}, "no explanation"),
        ]:
            with using([reply], retries=0) as (client, node):
                with self.assertRaisesRegex(Problem, text) as raised:
                    client.get("o", "a")
                self.assertEqual((raised.exception.status, raised.exception.code, len(node.seen)), (reply["status"], "", 1))

    def test_what_cannot_be_meant_is_refused_at_once(self) -> None:
        for url in [[], "127.0.0.1:7700", "ftp://x", "http://u:p@x", "http://x/?a", ""]:
            with self.assertRaises(ValueError, msg=url):
                Client(url)
        for token in ["a b", "a\nb", "ü"]:
            with self.assertRaises(ValueError, msg=token):
                Client("http://x", token=token)

    def test_what_cannot_be_sent_is_refused_by_the_client(self) -> None:
        circle: Any = []
        circle.append(circle)
        deep: Any = []
        for _ in range(100_000):
            deep = [deep]
        with using([TIMER]) as (client, node):
            for payload in ["\ud800", {"a": float("nan")}, float("inf"), circle, deep]:
                with self.assertRaisesRegex(ValueError, "^carillon: the body cannot be sent as JSON: "):
                    client.add("o", {"delay": "1s", "payload": payload})
            with self.assertRaisesRegex(TypeError, "^carillon: the body cannot be sent as JSON: "):
                client.add("o", {"delay": "1s", "payload": {(1, 2): 3}})
            with self.assertRaisesRegex(TypeError, "^carillon: object cannot be sent as JSON$"):
                client.add("o", {"delay": "1s", "payload": object()})
            with self.assertRaisesRegex(ValueError, "^carillon: "):
                client.get("o", "\ud800")
            with self.assertRaisesRegex(ValueError, "^carillon: "):
                list(client.list("o", label=["\ud800"]))
            self.assertEqual(node.seen, [])

    def test_requests_are_escaped_and_have_the_clients_headers(self) -> None:
        with using([TIMER]) as (client, node):
            client.put("o", "{k}a:b@c", {"at": AT}, create_only=True)
            client.patch_topic("o", {"callback": {"timeout": None}}, if_match="7-3", force=True)
            client.add("o", {"delay": "1s"}, idempotency_key="k")
            list(client.list("o", label=["a", "b"], due_from=datetime(2030, 1, 1, tzinfo=timezone.utc), payload=False))
            put, patch, add, listed = node.seen
            self.assertEqual(put[:2], ("PUT", "/v1/topics/o/timers/%7Bk%7Da%3Ab%40c"))
            self.assertEqual((put[2]["If-None-Match"], put[2]["Content-Type"]), ("*", "application/json"))
            self.assertEqual((patch[1], patch[2]["If-Match"], patch[3]), ("/v1/topics/o?force=true", '"7-3"', b'{"callback":{"timeout":null}}'))
            self.assertEqual(add[2]["Idempotency-Key"], '"k"')
            self.assertEqual(listed[1], "/v1/topics/o/timers?due_from=2030-01-01T00%3A00%3A00%2B00%3A00&label=a&label=b&payload=false&limit=1000")

    def test_pythons_own_types_are_sent(self) -> None:
        moment = datetime(2030, 1, 1, tzinfo=timezone.utc)
        self.assertEqual(encode({"at": moment, "delay": timedelta(minutes=1.5), "b": b"\0\xff", "text": "ü"}).decode(), '{"at":"2030-01-01T00:00:00+00:00","delay":"90000000us","b":"AP8=","text":"ü"}')
        for wrong in (datetime(2030, 1, 1), float("nan"), object()):
            with self.assertRaises((ValueError, TypeError)):
                encode(wrong)


if __name__ == "__main__":
    unittest.main()
