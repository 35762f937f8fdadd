"""The receiver of callbacks."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import math
import re
import secrets as random_secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple


class FenceStore(Protocol):
    """Remembers the highest fence of each timer. One that is written in one transaction with the
    handler's effects is complete."""

    def admit(self, topic: str, timer: str, fence: int) -> bool:
        """Whether the fence is higher than all that were admitted of the timer; if so it is
        remembered."""
        ...


class Fences:
    """A FenceStore in memory, good for one process. It holds the timers that were called last."""

    def __init__(self, size: int = 100_000) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._fences: OrderedDict[Tuple[str, str], int] = OrderedDict()  # in order of the last call

    def admit(self, topic: str, timer: str, fence: int) -> bool:
        with self._lock:
            highest = self._fences.get((topic, timer))
            if highest is not None and fence <= highest:
                return False
            self._fences[topic, timer] = fence
            self._fences.move_to_end((topic, timer))
            if len(self._fences) > self._size:
                self._fences.popitem(last=False)
            return True


@dataclass(frozen=True)
class CloudEvent:
    """The attributes of CloudEvents 1.0, as they came. No signature covers them."""

    id: str
    source: str
    type: str
    subject: str
    time: str


@dataclass(frozen=True)
class Delivery:
    """One call of a node."""

    topic: str
    timer: str
    id: str
    """The idempotence key, webhook-id: the same for all attempts of one version of one timer,
    another for any other."""
    attempt: int
    fence: int
    """Grows with every attempt over the life of the timer's id."""
    due: datetime
    asked: Optional[datetime]
    """When somebody fired the timer by hand, perhaps before due. No signature covers it."""
    receipt: str
    """Topics with ack report: answer 202, and ack, nack or extend with it later."""
    body: bytes
    content_type: str
    """The payload's, "" without one. The signature covers that of a call of many."""
    cloud_event: Optional[CloudEvent]
    """Of topics with format cloudevents."""

    def json(self) -> Any:
        """The payload, where it is JSON."""
        return json.loads(self.body)


class RetryAfter(Exception):
    """Has a timer come again after so many seconds instead of the topic's backoff. Calls come
    again after 1 s to 1 h."""

    def __init__(self, delay: float, message: str = "") -> None:
        super().__init__(message)
        self.delay = delay


class Stop(Exception):
    """Has a call answered 410: no attempt will succeed, and the timer is a dead letter at once.
    For a worker it is an error as any other."""


class Refusal(Exception):
    """A call that no handler gets, and the status that it is answered with."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


Handler = Callable[[Delivery], Optional[int]]
"""Handles a call. It returns None for 204, or a status: 202 where the topic's ack is report. Any
error is 500, but RetryAfter 503 and Stop 410."""

ManyHandler = Callable[[List[Delivery]], Optional[Sequence[Optional[Exception]]]]
"""Handles the timers of a call of many, or the one of a call for one, as a retry is. It returns what
failed: an exception at the place of each such timer, and None for the others; None, or a shorter
list, means that the rest is done. An exception that it raises fails all."""

_STALE = "a later attempt of this timer has been here"
_MAX_SIGNATURES = 16  # of one header: bounds the work that it can ask for

# Their values Carillon-Signature covers, in this order. One that is missing counts as empty.
_SIGNED = (
    "webhook-id", "webhook-timestamp", "carillon-topic", "carillon-timer", "carillon-due", "carillon-attempt",
    "carillon-fence", "carillon-receipt",
)


class Receiver:
    """Receives callbacks: it checks signatures, and drops calls of leases that are over. Calls come
    at least once.

    secrets are the topic's, whsec_…: a call is good when one of them signed it. During a
    rotation give the old and the new. public_keys are the topic's, whpk_…, and need the package
    cryptography. unsigned takes calls without looking at signatures. tolerance is how far the
    signature's time may be from the clock, in seconds.
    """

    def __init__(
        self, *, secrets: Sequence[str] = (), public_keys: Sequence[str] = (), unsigned: bool = False,
        tolerance: float = 300.0, max_body: int = 1 << 20, fences: Optional[FenceStore] = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._keys = [_parse_secret(secret) for secret in secrets]
        self._checks = [_check_of(key) for key in public_keys]
        if unsigned == bool(self._keys or self._checks):
            raise ValueError("carillon: a receiver needs the topic's secrets or public_keys, or unsigned to do without")
        self._unsigned, self._tolerance, self._max_body, self._now = unsigned, tolerance, max_body, now
        self._fences = Fences() if fences is None else fences

    def receive(self, headers: Mapping[str, str], body: bytes) -> Delivery:
        """Checks a call and reads it. It raises a Refusal: 401 for a signature, 400 for a
        request that is no call, 409 for a lease that is over."""
        lower = {name.lower(): value for name, value in headers.items()}
        if not self._unsigned and not self._signed(lower, body):
            raise Refusal(401, "the signature is not good")
        delivery = _read(lower, body)
        if not self._fences.admit(delivery.topic, delivery.timer, delivery.fence):
            raise Refusal(409, _STALE)
        return delivery

    def receive_many(self, headers: Mapping[str, str], body: bytes) -> List[Delivery]:
        """receive for topics with batch: the timers of a call of many, without those whose lease
        is over, or the one of a call for one."""
        return self._receive_many(headers, body)[0]

    def _receive_many(self, headers: Mapping[str, str], body: bytes) -> Tuple[List[Delivery], List[Delivery]]:
        """The timers of a call, and apart from them those whose lease is over."""
        lower = {name.lower(): value for name, value in headers.items()}
        if lower.get("carillon-timer"):
            return [self.receive(headers, body)], []
        if not self._unsigned and not self._signed(lower, body):
            raise Refusal(401, "the signature is not good")
        fresh: List[Delivery] = []
        stale: List[Delivery] = []
        for d in _read_many(lower, body):
            (fresh if self._fences.admit(d.topic, d.timer, d.fence) else stale).append(d)
        return fresh, stale

    def answer(self, headers: Mapping[str, str], body: bytes, handle: Handler) -> Tuple[int, Dict[str, str], bytes]:
        """Receives and handles a call, for any framework: the status, headers and body of the
        answer."""
        try:
            self._bound(body)
            status = handle(self.receive(headers, body))
            return (204 if status is None else status), {}, b""
        except Exception as err:  # whatever a handler raises is its failure
            return _failure(err)

    def answer_many(self, headers: Mapping[str, str], body: bytes, handle: ManyHandler) -> Tuple[int, Dict[str, str], bytes]:
        """answer for topics with batch. Timers whose lease is over are answered as failed: the
        call may be the copy of one that is still being handled."""
        try:
            self._bound(body)
            deliveries, stale = self._receive_many(headers, body)
            errors = list((handle(deliveries) if deliveries else None) or [])
            if any(name.lower() == "carillon-timer" and value for name, value in headers.items()):
                return _failure(errors[0]) if errors and errors[0] else (204, {}, b"")
            failed = [{"webhook_id": d.id, "error": _STALE} for d in stale]
            failed += [{"webhook_id": d.id, "error": _text(err)} for d, err in zip(deliveries, errors) if err]
            return 200, {"Content-Type": "application/json"}, json.dumps({"failed": failed}).encode()
        except Exception as err:  # whatever a handler raises is its failure
            return _failure(err)

    def _bound(self, body: bytes) -> None:
        if len(body) > self._max_body:
            raise Refusal(413, "body too large")

    def wsgi(self, handle: Handler) -> Callable[[Dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
        """A WSGI application: for wsgiref, gunicorn, or below a path of Flask and Django."""
        return self._application(lambda headers, body: self.answer(headers, body, handle))

    def wsgi_many(self, handle: ManyHandler) -> Callable[[Dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
        """wsgi for topics with batch."""
        return self._application(lambda headers, body: self.answer_many(headers, body, handle))

    def _application(
        self, answer: Callable[[Mapping[str, str], bytes], Tuple[int, Dict[str, str], bytes]]
    ) -> Callable[[Dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
        def application(environ: Dict[str, Any], start_response: Callable[..., Any]) -> List[bytes]:
            size = environ.get("CONTENT_LENGTH") or "0"
            body = environ["wsgi.input"].read(min(int(size), self._max_body + 1))
            headers = {name[5:].replace("_", "-"): v for name, v in environ.items() if name.startswith("HTTP_")}
            headers["CONTENT-TYPE"] = environ.get("CONTENT_TYPE", "")
            status, more, text = answer(headers, body)
            start_response(f"{status} ", list({"Content-Type": "text/plain; charset=utf-8", **more}.items()))
            return [text]

        return application

    def _signed(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Webhook-Signature covers the body, by the Standard Webhooks scheme; Carillon-Signature
        covers the Carillon-* headers, which that scheme leaves open: without it a call that was
        overheard could be sent again for another timer."""
        id, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        seconds = _integer(stamp)
        if not id or seconds is None or abs(self._now() - seconds) > self._tolerance:
            return False
        values = "\n".join(["carillon-v1", *(headers.get(name, "") for name in _SIGNED)]).encode("utf-8", "replace")
        of_body = self._signs(headers.get("webhook-signature", ""), f"{id}.{stamp}.".encode("utf-8", "replace") + body)
        return self._signs(headers.get("carillon-signature", ""), values) and of_body

    def _signs(self, header: str, text: bytes) -> bool:
        """Whether a header holds the signature that one of the secrets or private keys makes of
        a text."""
        offered = [one.encode("utf-8", "replace") for one in header.split(" ")[:_MAX_SIGNATURES]]
        for key in self._keys:
            want = b"v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest())
            if any([hmac.compare_digest(want, one) for one in offered]):
                return True
        signatures = [_bytes(one[4:]) for one in offered if one.startswith(b"v1a,")] if self._checks else []
        return any(check(one, text) for check in self._checks for one in signatures if one is not None)


def _failure(err: Exception) -> Tuple[int, Dict[str, str], bytes]:
    """The answer to a call that failed so."""
    if isinstance(err, Refusal):
        return err.status, {}, str(err).encode()
    if isinstance(err, Stop):
        return 410, {}, str(err).encode()
    if isinstance(err, RetryAfter):
        return 503, {"Retry-After": str(max(math.ceil(err.delay), 1))}, str(err).encode()
    return 500, {}, _text(err).encode()


def _text(err: Exception) -> str:
    return str(err) or type(err).__name__


def new_secret() -> str:
    """Makes a secret to sign callbacks with."""
    return "whsec_" + base64.b64encode(random_secrets.token_bytes(32)).decode()


def _parse_secret(text: str) -> bytes:
    key = _bytes(text[6:].encode()) if text.startswith("whsec_") else None
    if key is None or not 24 <= len(key) <= 64:
        raise ValueError("carillon: a secret is whsec_ and the base64 of 24 to 64 bytes")
    return key


def _check_of(text: str) -> Callable[[bytes, bytes], bool]:
    """The check of signatures by a public key."""
    key = _bytes(text[5:].encode()) if text.startswith("whpk_") else None
    if key is None or len(key) != 32:
        raise ValueError("carillon: a public key is whpk_ and the base64 of 32 bytes")
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as err:
        raise ImportError(
            "carillon: signatures by ed25519 keys need the package cryptography (pip install 'carillon-client[ed25519]');"
            " signatures by a topic's secrets need nothing"
        ) from err
    public = Ed25519PublicKey.from_public_bytes(key)

    def check(signature: bytes, text: bytes) -> bool:
        try:
            public.verify(signature, text)
            return True
        except InvalidSignature:
            return False

    return check


def _bytes(text: bytes) -> Optional[bytes]:
    """Standard base64 with its padding; None for anything else."""
    try:
        value = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return value if base64.b64encode(value) == text else None


def _integer(text: str) -> Optional[int]:
    return int(text) if re.fullmatch("[0-9]{1,20}", text) else None


def _read(headers: Mapping[str, str], body: bytes) -> Delivery:
    due, attempt = _integer(headers.get("carillon-due", "")), _integer(headers.get("carillon-attempt", ""))
    fence, asked = _integer(headers.get("carillon-fence", "")), _integer(headers.get("carillon-asked", ""))
    topic, timer, id = (headers.get(name, "") for name in ("carillon-topic", "carillon-timer", "webhook-id"))
    if not topic or not timer or not id or due is None or attempt is None or fence is None:
        raise Refusal(400, "this is no call of Carillon: its headers are missing")
    event = None
    if headers.get("ce-specversion"):
        event = CloudEvent(*(headers.get("ce-" + name, "") for name in ("id", "source", "type", "subject", "time")))
    receipt, content_type = headers.get("carillon-receipt", ""), headers.get("content-type", "")
    try:
        return Delivery(
            topic, timer, id, attempt, fence, _moment(due), _moment(asked) if asked else None, receipt, body, content_type, event
        )
    except OverflowError:
        raise Refusal(400, "this is no call of Carillon: its times are out of range") from None


def _read_many(headers: Mapping[str, str], body: bytes) -> List[Delivery]:
    """The timers in the body of a call of many."""
    try:
        text = body.decode()
        if not headers.get("webhook-id") or not _JSON.decode(text)["timers"]:
            raise ValueError
        timers = dict(_values(text))["timers"]
        return [_read_one(dict(_values(timer))) for _, timer in _values(timers)]
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        raise Refusal(400, "this is no call of Carillon: it has neither the headers of one timer nor a body of many") from None


_JSON = json.JSONDecoder(parse_int=str)  # an integer of a payload may have any length
_BETWEEN = re.compile(r"[ \t\n\r]*[{[,:]?[ \t\n\r]*")


def _values(text: str) -> Iterator[Tuple[str, str]]:
    """The values of an object or array, which is good JSON, as they are spelled: a payload keeps its
    bytes. The values of an array have no name."""
    named, name = text.lstrip().startswith("{"), ""
    at = _past(text, 0)
    while text[at] not in "}]":
        if named:
            name, at = _JSON.raw_decode(text, at)
            at = _past(text, at)
        _, end = _JSON.raw_decode(text, at)
        yield name, text[at:end]
        at = _past(text, end)


def _past(text: str, at: int) -> int:
    """The place of the next value or name, or of the end."""
    between = _BETWEEN.match(text, at)
    return between.end() if between else at


def _read_one(source: Mapping[str, str]) -> Delivery:
    """A timer of a call of many, of which the members are as they are spelled."""
    timer = {name: _JSON.decode(text) for name, text in source.items() if name != "payload"}
    payload, usual = b"", ""
    if "payload_base64" in timer:
        payload, usual = base64.b64decode(timer["payload_base64"], validate=True), "application/octet-stream"
    elif "payload" in source:
        payload, usual = source["payload"].encode(), "application/json"
    headers = {
        "carillon-topic": timer["topic"], "carillon-timer": timer["id"], "webhook-id": timer["webhook_id"],
        "carillon-due": timer["due_ms"], "carillon-attempt": timer["attempt"], "carillon-fence": timer["fence"],
        "carillon-asked": timer.get("asked_ms", ""), "content-type": timer.get("content_type") or usual,
    }
    return _read(headers, payload)


def _moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=ms)
