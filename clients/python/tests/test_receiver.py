"""Which calls a receiver believes, and what it answers."""

from __future__ import annotations

import base64
import builtins
import hashlib
import hmac
import io
import json
import unittest
from typing import Any, Dict, List
from unittest import mock

from carillon import Delivery, Fences, Receiver, Refusal, RetryAfter, Stop, new_secret

try:
    import cryptography  # noqa: F401

    KEYS = True
except ImportError:
    KEYS = False

# The example of docs/callbacks.md.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PUBLIC_KEY = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
BODY = b'{"test": 2432232314}'
VALUES = {
    "Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp": "1614265330", "Carillon-Topic": "orders",
    "Carillon-Timer": "{o-77}close", "Carillon-Due": "1614265330000", "Carillon-Attempt": "2", "Carillon-Fence": "7",
}
BY_SECRET = {
    **VALUES, "Webhook-Signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    "Carillon-Signature": "v1,gUfpyP4Ajg1OYhURY2R8wSPredmP9gSByJdTfvLph9Q=",
}
BY_KEY = {
    **VALUES,
    "Webhook-Signature": "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
    "Carillon-Signature": "v1a,dX/VnLFd2k+eGQbgXZG3eQ+MigzyCLITKSfGFrmFKLB3G1j8BedBThWyqZmCgQ2P7chOnlXMheqyFPAqLTbJBA==",
}
NOW = 1614265330.0


def receive(headers: Dict[str, str], body: bytes = BODY, now: float = NOW, **options: Any) -> Delivery:
    return Receiver(now=lambda: now, **options).receive(headers, body)


class Receiving(unittest.TestCase):
    def refused(self, status: int, *args: Any, **options: Any) -> None:
        with self.assertRaises(Refusal) as raised:
            receive(*args, **options)
        self.assertEqual(raised.exception.status, status)

    def test_the_examples_of_the_manual_are_good(self) -> None:
        schemes: Any = [({"secrets": [SECRET]}, BY_SECRET), ({"secrets": [new_secret(), SECRET]}, BY_SECRET)]
        for options, headers in schemes + ([({"public_keys": [PUBLIC_KEY]}, BY_KEY)] if KEYS else []):
            d = receive(headers, **options)
            self.assertEqual((d.topic, d.timer, d.id, d.attempt, d.fence, d.receipt), ("orders", "{o-77}close", VALUES["Webhook-Id"], 2, 7, ""))
            self.assertEqual((d.due.timestamp(), d.json()), (NOW, {"test": 2432232314}))

    def test_any_change_makes_a_call_bad(self) -> None:
        for options, good in [({"secrets": [SECRET]}, BY_SECRET)] + ([({"public_keys": [PUBLIC_KEY]}, BY_KEY)] if KEYS else []):
            o: Any = options
            for name, value in good.items():
                self.refused(401, {n: v for n, v in good.items() if n != name}, **o)
                self.refused(401, {**good, name: value + "0"}, **o)
            self.refused(401, {**good, "Carillon-Receipt": "r"}, **o)
            self.refused(401, good, b"{}", **o)
            self.refused(401, good, now=NOW - 301, **o)
            self.refused(401, good, now=NOW + 301, **o)
            receive(good, now=NOW + 300, **o)
            receive({**good, "Webhook-Signature": "v1,AAAA " + good["Webhook-Signature"]}, **o)
            self.refused(401, {**good, "Webhook-Signature": "v1,A " * 16 + good["Webhook-Signature"]}, **o)
        self.refused(401, BY_SECRET, secrets=[new_secret()])
        self.refused(401, BY_KEY, secrets=[SECRET])

    def test_bodies_are_signed_as_bytes(self) -> None:
        text = f"{VALUES['Webhook-Id']}.{VALUES['Webhook-Timestamp']}.".encode() + b"\xff\0\xfe"
        mac = hmac.new(base64.b64decode(SECRET[6:]), text, hashlib.sha256)
        headers = {**BY_SECRET, "Webhook-Signature": "v1," + base64.b64encode(mac.digest()).decode()}
        self.assertEqual(receive(headers, b"\xff\0\xfe", secrets=[SECRET]).body, b"\xff\0\xfe")

    def test_keys_without_their_library_are_refused_at_once(self) -> None:
        real = builtins.__import__

        def without(name: str, *args: Any) -> Any:
            if name.startswith("cryptography"):
                raise ImportError(name)
            return real(name, *args)

        with mock.patch.object(builtins, "__import__", without):
            with self.assertRaisesRegex(ImportError, r"need the package cryptography .pip install 'carillon-client\[ed25519\]'"):
                Receiver(public_keys=[PUBLIC_KEY])

    def test_options_that_would_believe_anybody_or_nobody_are_refused(self) -> None:
        wrong: Any = [
            {}, {"unsigned": True, "secrets": [SECRET]}, {"secrets": ["x"]}, {"secrets": ["whsec_AAAA"]},
            {"secrets": [SECRET + "="]}, {"public_keys": ["whpk_AAAA"]},
        ]
        for options in wrong:
            with self.assertRaises(ValueError, msg=options):
                Receiver(**options)

    def test_a_lease_that_is_over_is_dropped(self) -> None:
        f = Fences(2)
        got = [f.admit("o", "a", 7), f.admit("o", "a", 7), f.admit("o", "a", 6), f.admit("p", "a", 6), f.admit("o", "a", 8)]
        self.assertEqual(got, [True, False, False, True, True])
        self.assertTrue(f.admit("o", "b", 1))  # and p/a is forgotten
        self.assertEqual([f.admit("o", "a", 8), f.admit("p", "a", 1)], [False, True])

    def test_answers(self) -> None:
        receiver = Receiver(unsigned=True, max_body=1000)
        got = []

        def failing(err: Exception) -> Any:
            def handle(d: Delivery) -> None:
                raise err

            return handle

        outcomes: Any = [
            (lambda d: got.append(d), 204, None), (lambda d: 202, 202, None), (failing(ValueError("no")), 500, None),
            (failing(RetryAfter(1.5, "later")), 503, "2"), (failing(Stop("never")), 410, None),
        ]
        for fence, (handle, status, retry_after) in enumerate(outcomes, 1):
            headers = {**VALUES, "Carillon-Fence": str(fence), "Carillon-Asked": "5000", "CE-SpecVersion": "1.0", "CE-Id": "x"}
            answer = receiver.answer(headers, b"{}", handle)
            self.assertEqual((answer[0], answer[1].get("Retry-After")), (status, retry_after))
            self.assertEqual(receiver.answer(headers, b"{}", handle)[0], 409)
            self.assertEqual(receiver.answer(headers, b"x" * 1001, handle)[0], 413)
            self.assertEqual(receiver.answer({}, b"{}", handle)[0], 400)
            self.assertEqual(receiver.answer({**headers, "Carillon-Due": "9" * 20}, b"{}", handle)[0], 400)
        assert got[0].asked and got[0].cloud_event
        self.assertEqual((got[0].asked.timestamp(), got[0].cloud_event.id), (5, "x"))

    def test_a_call_of_many_timers(self) -> None:
        """It is checked, taken apart and answered with what failed; a retry comes alone."""

        def part(id: str, fence: int, **more: Any) -> Dict[str, Any]:
            return {"topic": "orders", "id": id, "webhook_id": "msg_" + id, "due_ms": 1614265330000, "attempt": 1, "fence": fence, **more}

        def call(*timers: Dict[str, Any]) -> bytes:
            return json.dumps({"timers": timers}).encode()

        def sign(text: bytes) -> str:
            return "v1," + base64.b64encode(hmac.new(base64.b64decode(SECRET[6:]), text, hashlib.sha256).digest()).decode()

        id, stamp = VALUES["Webhook-Id"], VALUES["Webhook-Timestamp"]

        def send(body: bytes, **other: str) -> Any:
            headers = {
                "Webhook-Id": id, "Webhook-Timestamp": stamp, "Carillon-Topic": "orders",
                "Webhook-Signature": sign(f"{id}.{stamp}.".encode() + body),
                "Carillon-Signature": sign("\n".join(["carillon-v1", id, stamp, "orders", "", "", "", "", ""]).encode()),
                **other,
            }
            got.clear()
            status, _, text = receiver.answer_many(headers, body, handle)
            return status, text, [(d.timer, d.id, d.body) for d in got]

        def handle(deliveries: List[Delivery]) -> Any:
            got.extend(deliveries)
            return [ValueError("card declined") if b"bad" in d.body else None for d in deliveries]

        got: List[Delivery] = []
        receiver = Receiver(secrets=[SECRET], now=lambda: NOW)
        body = call(part("a", 7, asked_ms=5000, payload={"n": 1}), part("b", 8, payload_base64="YmFk"), part("c", 9))
        failed = b'{"failed": [{"webhook_id": "msg_b", "error": "card declined"}]}'
        self.assertEqual(send(body), (200, failed, [("a", "msg_a", b'{"n": 1}'), ("b", "msg_b", b"bad"), ("c", "msg_c", b"")]))
        self.assertEqual([d.asked and d.asked.timestamp() for d in got], [5, None, None])
        again = call(part("a", 7, payload=1), part("b", 10, payload=1))  # the first lease is over
        error = "a later attempt of this timer has been here"
        status, text, handled = send(again)
        self.assertEqual((status, json.loads(text), handled), (200, {"failed": [{"webhook_id": "msg_a", "error": error}]}, [("b", "msg_b", b"1")]))
        status, text, handled = send(again)  # a proxy's copy: the handler of the first may fail yet
        self.assertEqual((status, handled), (200, []))
        self.assertEqual(json.loads(text), {"failed": [{"webhook_id": "msg_a", "error": error}, {"webhook_id": "msg_b", "error": error}]})
        for bad in (b"{}", b"[]", b"x", b'{"timers":[]}', b'{"timers":[5]}', b'{"timers":5}', call({}), call(part("a", 11, payload_base64="?"))):
            self.assertEqual(send(bad)[0], 400, bad)
        self.assertEqual(send(body, **{"Carillon-Signature": BY_SECRET["Carillon-Signature"]})[0], 401)
        self.assertEqual(receiver.answer_many(BY_SECRET, BODY, handle), (204, {}, b""))

    def test_payloads_of_a_call_of_many_keep_their_bytes(self) -> None:
        """Each timer has the bytes and the type that a retry of it, which comes alone, has."""
        payloads = [
            "12345678901234567890", '{"n": 1.50,"b":[ -0.0, 1E400,"\\u00e9 é\\/", "}],\\"{[" ], "payload" : 1 }', '{"payload":[{}]}', "null", '""', "9" * 5000,
        ]
        parts = [
            f' {{ "payload" : {p} , "topic":"orders","id":"{n}","webhook_id":"msg","due_ms":1,"attempt":1,"fence":1, "key":"payload"}}' for n, p in enumerate(payloads)
        ]
        rest = '"topic":"orders","webhook_id":"msg","due_ms":1,"attempt":1,"fence":1'
        parts += [f'{{{rest},"id":"b","payload_base64":"AAE="}}', f'{{{rest},"id":"t","payload_base64":"","content_type":"image/png"}}', f'{{{rest},"id":"none"}}']
        body = '{"more":[{"payload":7}], "timers":[' + ",".join(parts) + ' ] ,"other":{"payload":8}}\n'
        got = Receiver(unsigned=True).receive_many({"Webhook-Id": "msg"}, body.encode())
        want = [(p.encode(), "application/json") for p in payloads]
        self.assertEqual([(d.body, d.content_type) for d in got], want + [(b"\0\1", "application/octet-stream"), (b"", "image/png"), (b"", "")])

    def test_wsgi(self) -> None:
        got = []
        application = Receiver(unsigned=True).wsgi(lambda d: got.append((d.json(), d.content_type)))
        environ: Dict[str, Any] = {"HTTP_" + name.upper().replace("-", "_"): value for name, value in VALUES.items()}
        environ.update({"CONTENT_LENGTH": "2", "CONTENT_TYPE": "application/json", "wsgi.input": io.BytesIO(b"{}")})
        started = []
        self.assertEqual(b"".join(application(environ, lambda *args: started.append(args))), b"")
        self.assertEqual((got, started[0][0][:3]), ([({}, "application/json")], "204"))


if __name__ == "__main__":
    unittest.main()
