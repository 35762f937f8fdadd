"""Every route that the client has, against a real node; and three of them, of which one dies."""

from __future__ import annotations

import re
import threading
import time
import unittest
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler
from typing import Any, List, Set, Tuple

from carillon import Client, Problem, Receiver, Request, RetryAfter, Unanswered, new_secret, shard_of
from carillon.calls import Calls
from nodes import ROOT, Node, Server, cluster, eventually

try:
    import cryptography  # noqa: F401

    KEYS = True
except ImportError:
    KEYS = False

SECRET = new_secret()
called: Set[str] = set()  # "METHOD /path"


def in_an_hour() -> datetime:
    return datetime.now(timezone.utc) + timedelta(hours=1)


class Recording:
    """Remembers which routes were called."""

    def __init__(self, seen: Any = called) -> None:
        self.seen, self._send = seen, Calls._send

    def __enter__(self) -> Recording:
        recording = self

        def send(calls: Calls, r: Request, timeout: Any) -> Any:
            recording.seen.add(f"{r.method} {r.path}")
            return recording._send(calls, r, timeout)

        Calls._send = send  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: Any) -> None:
        Calls._send = self._send  # type: ignore[method-assign]


class Contract(unittest.TestCase):
    """The methods run in order of their names; the later ones use what the earlier ones have
    made."""

    node: Node
    client: Client
    hook: Server
    receiver: Receiver
    arrived: List[Any] = []

    @classmethod
    def setUpClass(cls) -> None:
        cls.node = Node("--shards", "4").ready()
        cls.client = Client(cls.node.url)
        cls.receiver = Receiver(secrets=[SECRET])
        cls.hook = Server(cls.call)
        cls.recording = Recording()
        cls.recording.__enter__()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.recording.__exit__()
        cls.hook.close()
        cls.client.close()
        cls.node.kill()

    @classmethod
    def call(cls, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        def handle(d: Any) -> None:
            cls.arrived.append(d)
            if d.timer == "fails":
                raise ValueError("not today")

        status, headers, text = cls.receiver.answer(dict(handler.headers), body, handle)
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(text)))
        handler.end_headers()
        handler.wfile.write(text)

    def refused(self, code: str) -> Any:
        return self.assertRaisesRegex(Problem, code)

    def test_01_topics(self) -> None:
        c = self.client
        made = c.put_topic("orders", {"callback": {"url": self.hook.url, "timeout": "5s"}, "secrets": [SECRET], "retry": {"max_attempts": 1}})
        self.assertEqual((made["policy"]["callback"]["url"], made["policy"]["retry"]["max_attempts"], made["auto_created"]), (self.hook.url, 1, False))
        self.assertNotEqual(made["policy"]["secrets"], [SECRET])
        c.put_topic("orders", made["policy"])  # a policy can be put back as shown
        self.assertEqual(c.put_topic("orders", made["policy"], dry_run=True)["action"], "leave")
        dry = c.patch_topic("orders", {"history": "9h"}, dry_run=True)
        self.assertEqual(dry["changes"], [{"field": "history", "from": made["policy"]["history"], "to": "9h"}])
        self.assertEqual(c.topic("orders")["policy"], made["policy"])
        version = c.topic("orders")["version"]
        patched = c.patch_topic("orders", {"concurrency": 7, "callback": {"timeout": None}}, if_match=version)
        self.assertEqual((patched["policy"]["concurrency"], patched["policy"]["callback"]["timeout"]), (7, "10s"))
        with self.refused("version_mismatch"):
            c.patch_topic("orders", {"concurrency": 8}, if_match=version)
        self.assertEqual((c.pause("orders")["paused"], c.resume("orders")["paused"]), (True, False))
        self.assertEqual([(t["topic"], t["counts"]["scheduled"]) for t in c.topics(prefix="ord", counts=True)], [("orders", 0)])
        with self.refused("unknown_topic"):
            c.topic("nobody")

    def test_02_keys_are_changed_without_a_call_being_refused(self) -> None:
        c = self.client
        self.assertEqual(len(c.rotate_secret("orders", new_secret())["secrets"]), 2)
        self.assertTrue(c.rotate_secret("orders")["secret"].startswith("whsec_"))
        first = c.topic("orders")["policy"]["secrets"][2]
        self.assertEqual(c.finish_rotation("orders", first)["secrets"], [first])
        kept = c.rotate_signing_key("orders")["signing_keys"][0]
        private = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
        self.assertEqual(len(c.rotate_signing_key("orders", private)["signing_keys"]), 2)
        self.assertEqual(c.finish_key_rotation("orders", kept)["signing_keys"], [kept])
        if KEYS:
            type(self).receiver = Receiver(public_keys=[kept])
            c.add("orders", {"id": "by-key", "delay": timedelta(0)})
            eventually(lambda: self.arrived)
        type(self).receiver = Receiver(secrets=[SECRET])

    def test_03_a_timers_life(self) -> None:
        c = self.client
        self.arrived.clear()
        at = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(seconds=1)
        spec: Any = {"id": "{order-77}close", "at": at, "payload": {"text": "<&> ü"}}
        made = c.add("orders", spec)
        self.assertEqual(c.add("orders", spec)["uid"], made["uid"])  # repeated
        eventually(lambda: self.arrived)
        d = self.arrived[0]
        self.assertEqual((d.topic, d.timer, d.attempt, d.due, d.json()), ("orders", spec["id"], 1, at, spec["payload"]))
        eventually(lambda: c.get("orders", spec["id"])["state"] == "done")
        with self.refused("over") as raised:
            c.cancel("orders", spec["id"])
        self.assertEqual(raised.exception.outcome, "already_fired")
        eventually(lambda: len(list(c.history("orders", id=spec["id"]))) == 1)

        keyed = c.add("orders", {"delay": "1h", "payload_base64": b"\0\xff"}, idempotency_key="once")
        self.assertEqual(c.add("orders", {"delay": "1h", "payload_base64": b"\0\xff"}, idempotency_key="once")["uid"], keyed["uid"])
        self.assertEqual(keyed["payload_base64"], "AP8=")

        put = c.put("orders", "p", {"at": in_an_hour()}, create_only=True)
        with self.refused("version_mismatch"):
            c.put("orders", "p", {"at": in_an_hour()}, create_only=True)
        patched = c.patch("orders", "p", {"priority": 9, "labels": ["vip"], "retry": {"max_attempts": 3}}, if_match=put["version"])
        self.assertEqual((patched["version"], patched["priority"], patched["labels"], patched["max_attempts"]), (put["version"] + 1, 9, ["vip"], 3))
        self.assertEqual(c.patch("orders", "p", {"retry": {"max_attempts": None}})["max_attempts"], 1)
        with self.refused("version_mismatch"):
            c.patch("orders", "p", {"priority": 1}, if_match=put["version"])
        self.assertEqual(c.fire("orders", "p")["id"], "p")
        eventually(lambda: any(d.timer == "p" and d.asked for d in self.arrived))
        with self.refused("unknown_timer"):
            c.get("orders", "nobody")
        with self.refused("bad_name"):
            c.add("orders", {"id": "a/b", "delay": "1s"})
        with self.refused("bad_time"):
            c.add("orders", {})

    def test_04_rehearsals_change_nothing(self) -> None:
        c = self.client
        series: Any = {"repeat": {"cron": "0 8 * * 1-5", "zone": "Europe/Berlin"}}
        self.assertEqual(len(c.dry_add("orders", series)["next"]), 5)
        self.assertEqual(c.dry_put("orders", "dry", {"delay": "1h"})["id"], "dry")
        self.assertGreater(c.dry_add("orders", {"at": "2020-01-01T00:00:00Z"})["late_by_ms"], 60_000)
        with self.refused("unknown_timer"):
            c.get("orders", "dry")
        c.put("orders", "series", series)
        self.assertEqual(len(c.get("orders", "series", next=3)["next"]), 3)
        self.assertEqual(c.dry_patch("orders", "series", {"priority": 3})["priority"], 3)
        self.assertEqual(c.get("orders", "series")["priority"], 0)
        held = c.pause_timer("orders", "series")
        self.assertEqual((held["paused"], held["waits_for"], c.resume_timer("orders", "series").get("paused")), (True, "paused", None))
        self.assertEqual(c.cancel("orders", "series"), "prevented")

    def test_05_many_at_once(self) -> None:
        c = self.client
        ops: Any = [{"op": "add", "id": f"b{n:02}", "at": in_an_hour(), "labels": [f"l{n % 2}"]} for n in range(20)]
        ops += [{"op": "add", "id": "a/b", "delay": "0s"}, {"op": "patch", "id": "b00", "priority": 3}, {"op": "cancel", "id": "b19"}]
        results = c.batch("orders", ops)
        self.assertEqual((results[0]["timer"]["labels"], results[20]["error"]["code"]), (["l0"], "bad_name"))
        self.assertEqual((results[21]["timer"]["priority"], results[22]["outcome"]), (3, "prevented"))
        self.assertEqual(c.batch("orders", [{"op": "fire", "id": "nobody"}], brief=True)[0]["error"]["code"], "unknown_timer")
        evens: Any = {"filter": {"label": "l0", "id_prefix": "b"}}
        dry = c.reschedule("orders", {**evens, "shift": "1h"}, dry_run=True)
        self.assertEqual((dry["matched"], dry["changed"], dry["dry_run"]), (10, 10, True))
        self.assertEqual(c.reschedule("orders", {**evens, "shift": "1h"})["changed"], 10)
        ids = [t["id"] for t in c.list("orders", id_prefix="b", label=["l1"], payload=False)]
        self.assertEqual((len(ids), ids[0]), (9, "b01"))
        self.assertEqual(len(c.due(topic="orders", buckets=2, until=in_an_hour())["counts"]), 2)
        self.assertEqual(c.pause_timers("orders", evens)["changed"], 10)
        self.assertEqual(c.resume_timers("orders", evens)["changed"], 10)
        self.assertEqual(c.cancel_all("orders", evens)["changed"], 10)
        with self.refused("bad_request"):
            c.cancel_all("orders", {})

    def test_06_pages_are_followed(self) -> None:
        c = self.client
        callback: Any = {"url": self.hook.url}
        c.batch("many", [{"op": "add", "id": f"m{n}", "delay": "1h", "callback": callback} for n in range(1000)], brief=True)
        c.add("many", {"id": "last", "delay": "2h", "callback": callback})
        ids = [t["id"] for t in c.list("many", payload=False)]
        self.assertEqual((len(ids), len(set(ids)), ids[-1]), (1001, 1001, "last"))
        self.assertEqual([(t["topic"], t["id"]) for t in c.list_all(id="last", payload=False)], [("many", "last")])
        self.assertEqual(len(list(c.list_all(id_prefix="m"))), 1000)

    def test_07_dead_letters(self) -> None:
        c = self.client
        c.add("orders", {"id": "fails", "delay": "0s"})
        eventually(lambda: list(c.dead_letters("orders", reason="max_attempts", start=datetime(2020, 1, 1, tzinfo=timezone.utc))))
        (dead,) = c.dead_letters("orders")
        self.assertEqual((dead["id"], dead["reason"], dead["last_status"]), ("fails", "max_attempts", 500))
        self.assertEqual([(a["error"], a["answer"]) for a in dead["attempt_log"]], [("status 500", "not today")])
        self.assertEqual(c.redrive_dead("orders", {"ids": ["fails"]}, dry_run=True)["changed"], 1)
        self.assertEqual(c.redrive_dead("orders", {"uids": [dead["uid"]]})["changed"], 1)
        eventually(lambda: list(c.dead_letters("orders")))
        self.assertEqual(c.purge_dead("orders", {"all": True})["changed"], 1)

    def test_08_a_worker_handles_each_timer_once_but_for_what_fails(self) -> None:
        c = self.client
        c.put_topic("jobs", {"delivery": "pull"})
        c.batch("jobs", [{"op": "add", "id": f"j{n}", "delay": "0s"} for n in range(12)], brief=True)
        handled: List[Any] = []
        errors: List[BaseException] = []
        stop = threading.Event()

        def handle(lease: Any, lost: threading.Event) -> None:
            handled.append(lease)
            if lease["id"] == "j3" and lease["attempt"] == 1:
                raise RetryAfter(0.01, "not yet")
            if lease["id"] == "j4" and lost.wait(1.4):  # longer than its lease
                raise ValueError("lost")

        options: Any = {"concurrency": 4, "lease": 1, "wait": 20, "stop": stop, "on_error": errors.append}
        working = threading.Thread(target=c.work, args=("jobs", handle), kwargs=options)
        working.start()
        eventually(lambda: c.topic("jobs")["counts"]["done"] == 12)
        stop.set()
        working.join(5)
        self.assertFalse(working.is_alive(), "the pull that waits was not ended")
        self.assertEqual((len(handled), sum(lease["id"] == "j3" for lease in handled), errors), (13, 2, []))
        (j3,) = c.history("jobs", id="j3")
        self.assertIn("not yet", j3["attempt_log"][0]["error"])

    def test_09_a_workers_handler_is_stopped(self) -> None:
        c = self.client
        c.add("jobs", {"id": "lost", "delay": "0s", "retry": {"max_attempts": 1}})
        stop, was = threading.Event(), []

        def gives_up(lease: Any, lost: threading.Event) -> None:
            c.ack([lease["receipt"]])  # so that it cannot be extended
            was.append(lost.wait(20))
            stop.set()

        c.work("jobs", gives_up, lease=1, wait=0.2, stop=stop)
        self.assertEqual(was, [True])
        c.add("jobs", {"id": "slow", "delay": "0s"})
        end = threading.Event()

        def ends(lease: Any, lost: threading.Event) -> None:
            end.set()
            was.append(lost.wait(20))

        c.work("jobs", ends, grace=0.05, stop=end)
        self.assertEqual(was, [True, True])
        with self.refused("wrong_delivery"):
            c.work("orders", lambda lease, lost: None)

    def test_10_leases_by_hand(self) -> None:
        c = self.client
        c.batch("jobs", [{"op": "add", "id": "h1", "delay": "0s"}, {"op": "add", "id": "h2", "delay": "0s"}])
        leases: List[Any] = []
        while len(leases) < 2:
            leases += c.pull("jobs", max=2 - len(leases), wait=1, lease=30)
        a, b = (lease["receipt"] for lease in leases)
        self.assertEqual([r["status"] for r in c.extend([a, "none"], 40)], [200, 410])
        self.assertEqual([r["status"] for r in c.nack([b], delay=3600, reason="later")], [200])
        self.assertEqual([c.ack([a])[0]["status"], c.ack([a])[0]["status"]], [200, 200])
        self.assertEqual(c.get("jobs", leases[1]["id"])["last_error"], "later")

    def test_11_an_add_whose_answer_is_lost_is_done_once(self) -> None:
        self.client.put_topic("digest", {"callback": {"url": self.hook.url}, "merge": "collect"})
        client = Client(self.node.url)
        send, lost = client.calls._send, []

        def lose(r: Request, timeout: Any) -> Any:
            exchange, pass_over = send(r, timeout)
            if r.method == "GET" or lost:
                return exchange, pass_over
            lost.append(exchange.close())  # type: ignore[func-returns-value]
            raise Unanswered("POST: lost")

        client.calls._send = lose  # type: ignore[method-assign, assignment]
        with client:
            with self.assertRaisesRegex(Unanswered, "lost"):
                client.add("digest", {"id": "day", "at": in_an_hour(), "payload": 1})
            lost.clear()
            client.add("digest", {"id": "part", "delay": "1h", "payload": 1, "part": "p"})
            lost.clear()
            client.add("digest", {"delay": "1h", "payload": 1}, idempotency_key="k")
            lost.clear()
            client.add("digest", {"id": "own", "at": in_an_hour(), "payload": 1, "merge": "reject"})
            lost.clear()
            client.add("mail", {"id": "first", "at": in_an_hour(), "payload": 1, "callback": {"url": self.hook.url}})
        self.assertEqual([self.client.get("digest", id)["payload"] for id in ("day", "part", "idem-k", "own")], [[1], [1], 1, 1])
        self.assertEqual(self.client.get("mail", "first")["version"], 1)

    def test_12_events(self) -> None:
        c = self.client
        seen: List[Any] = []
        events = c.events(topic="orders", kind="added,cancelled")

        def watch() -> None:
            for event in events:
                seen.append(event)

        watching = threading.Thread(target=watch)
        watching.start()
        n = 0
        while not {"added", "cancelled"} <= {e["kind"] for e in list(seen)}:  # it may begin between the two of a timer
            c.add("orders", {"id": f"e{n}", "at": in_an_hour()})
            c.cancel("orders", f"e{n}")
            n += 1
            time.sleep(0.02)
        events.close()
        watching.join(5)
        self.assertFalse(watching.is_alive(), "the stream was not ended")
        self.assertTrue(any(e["kind"] == "added" and e["topic"] == "orders" and e["due_ms"] for e in seen))
        with self.refused("bad_request"):
            list(c.events(kind="nonsense"))

    def test_13_the_cluster(self) -> None:
        c = self.client
        view = c.cluster()
        self.assertEqual((view["healthy"], len(view["nodes"]), len(view["shards"])), (True, 1, 4))
        name = view["nodes"][0]["name"]
        self.assertEqual((c.shard(1)["shard"], len(c.cluster_stats()["nodes"]), len(list(c.destinations(state="closed")))), (1, 1, 1))
        c.set_replicas(3)
        self.assertGreaterEqual(c.preview_shards(8)["bytes"], 0)
        with self.refused("bad_shards"):
            c.set_shards(6)
        self.assertGreaterEqual(c.finalize_upgrade(), 1)
        with self.refused("not_found"):
            c.drain_node("nobody")
        with self.refused("no_test_clock"):
            c.clock()
        with self.refused("no_test_clock"):
            c.advance("1h")
        self.assertEqual(c.resume_node(name)["state"], "alive")
        with self.refused("not_drained"):
            c.remove_node(name)
        self.assertGreater(sum(map(len, c.backup())), 1000)

    def test_14_topics_go(self) -> None:
        c = self.client
        with self.refused("not_empty"):
            c.delete_topic("orders")
        self.assertGreater(c.delete_topic("orders", force=True), 0)
        with self.refused("unknown_topic"):
            c.request(Request("GET", "/v1/topics/orders"))

    def test_15_all_routes_of_the_document_have_been_called(self) -> None:
        routes: List[Tuple[str, str]] = []
        path = ""
        for line in (ROOT / "docs/openapi.yaml").read_text().splitlines():
            if line == "webhooks:":
                break
            at, method = re.fullmatch(r"  (/\S*):", line), re.fullmatch("    (get|put|post|patch|delete):", line)
            path = at[1] if at else path
            if method:
                routes.append((method[1].upper(), path))
        others = ("/healthz", "/readyz", "/metrics")  # for load balancers and Prometheus

        def missing(method: str, path: str) -> bool:
            pattern = re.compile(f"{method} " + re.sub(r"\{\w+\}", "[^/]+", path))
            return path not in others and not any(pattern.fullmatch(one) for one in called)

        self.assertGreater(len(routes), 35)
        self.assertEqual([route for route in routes if missing(*route)], [])


class ThreeNodes(unittest.TestCase):
    def test_any_node_takes_a_call_leaders_are_found_and_a_node_may_die(self) -> None:
        nodes = cluster()
        client = Client([n.url for n in nodes])
        try:
            spec: Any = {"at": in_an_hour(), "callback": {"url": "http://127.0.0.1:9/"}}
            for n in range(40):
                client.add("orders", {**spec, "id": f"o{n}"})

            def goes_to_leaders() -> bool:
                view = client.cluster()
                address = {n["name"]: n["http"] for n in view["nodes"]}
                leads = {s["shard"]: address[s["leader"]] for s in view["shards"]}
                for id in (f"o{n}" for n in range(40)):
                    client.get("orders", id)
                    known = client.calls._leaders.node("orders", id)
                    asked = nodes[client.calls._current % 3 if known is None else known].url
                    if asked != "http://" + leads[shard_of("orders", id, 4)]:
                        return False
                return True

            eventually(goes_to_leaders)
            nodes[0].kill()
            for n in range(40, 80):  # calls are repeated until the others lead
                client.add("orders", {**spec, "id": f"o{n}"})
            self.assertEqual(len(list(client.list("orders"))), 80)
        finally:
            client.close()
            for node in nodes:
                node.kill()


if __name__ == "__main__":
    unittest.main()
