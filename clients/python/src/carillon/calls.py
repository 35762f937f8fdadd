"""Calls at any of a cluster's nodes."""

from __future__ import annotations

import base64
import http.client
import io
import json
import random
import re
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Callable, Deque, Mapping, Optional, Sequence, Tuple, TypeVar, Union
from urllib.parse import quote, urlencode, urlsplit

from .errors import Error, NeverSent, Problem, Unanswered, not_done, read_problem, worth_repeating
from .leaders import Leaders

_CONNECT_TIMEOUT = 3.0
_IDLE_SECONDS = 60.0  # a node closes idle connections after two minutes
_MAX_IDLE = 64  # connections of a node

T = TypeVar("T")


class Cancel:
    """Ends the call that it is given to, from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: Optional[socket.socket] = None
        self.cancelled = False

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it was closed meanwhile

    def watch(self, sock: Optional[socket.socket]) -> None:
        with self._lock:
            self._socket = sock
            if self.cancelled and sock is not None:
                raise OSError("the call has been cancelled")


@dataclass
class Request:
    """One call of the API."""

    method: str
    path: str
    """As path makes it."""
    query: Mapping[str, Any] = field(default_factory=dict)
    """Values that are None are left out; those of a list are repeated."""
    body: Any = None
    """Is sent as JSON; None: none."""
    headers: Mapping[str, str] = field(default_factory=dict)
    topic: str = ""
    """With timer, the one timer that the call is about: it goes to the node that leads its
    shard, if that is known."""
    timer: str = ""
    repeatable: bool = False
    """The call asks for the same when it is made twice: it is repeated after 429, 503 and failed
    connections."""
    timeout: Optional[float] = None
    """Seconds, with all repetitions; None: the client's."""
    cancel: Optional[Cancel] = None


def path(*parts: str) -> str:
    """The path of a call: /v1/ and the parts, each of them escaped."""
    return "/v1/" + "/".join(quote(utf8(part), safe="") for part in parts)


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as err:
        raise ValueError(f"carillon: {text!r} cannot be sent: {err.reason}") from err


class Calls:
    def __init__(
        self, urls: Union[str, Sequence[str]], token: Optional[str], retries: int, max_wait: float, timeout: float,
        ssl_context: Optional[ssl.SSLContext], user_agent: str,
    ) -> None:
        self._nodes = [_Node(url, ssl_context) for url in ([urls] if isinstance(urls, str) else urls)]
        if not self._nodes:
            raise ValueError("carillon: no URL of a node")
        self._leaders = Leaders([node.address for node in self._nodes])
        self._headers = {"User-Agent": user_agent, "Accept": "*/*"}
        token = (token or "").strip()
        if token:
            if not re.fullmatch("[!-~]+", token):
                raise ValueError("carillon: the token has a character that no token has")
            self._headers["Authorization"] = "Bearer " + token
        self._retries, self._max_wait, self._timeout = max(retries, 0), max_wait, timeout
        self._current = 0  # the node that answered last, modulo their number

    def json(self, r: Request, may_repeat: Optional[Callable[[float], bool]] = None) -> Any:
        """Makes a call and reads its answer; None where that has no body. may_repeat is asked,
        with the seconds that are left, before a call is repeated that may have been done."""
        deadline = time.monotonic() + (self._timeout if r.timeout is None else r.timeout)
        tries = 0

        def once() -> Any:
            return self._once(r, deadline)

        while True:
            try:
                return self._any_node(once)
            except Error as err:
                wait = self.pause(err, tries)
                late = time.monotonic() + wait >= deadline
                if not r.repeatable or tries >= self._retries or not worth_repeating(err) or late:
                    raise
                time.sleep(wait)
                if may_repeat and not not_done(err) and not may_repeat(deadline - time.monotonic()):
                    raise
            tries += 1

    def open(self, r: Request, silence: float) -> Stream:
        """Makes a call once, and gives the answer to be read. silence is how long it may pause,
        in seconds."""
        return self._any_node(lambda: Stream(*self._send(r, time.monotonic() + silence), silence))

    def pause(self, err: BaseException, tries: int) -> float:
        """How long to wait before a call is made again that ended so, after as many tries
        before."""
        backoff: float = 0.05 * 2 ** min(tries, 10) * random.uniform(0.5, 1.5)
        asked: float = err.retry_after if isinstance(err, Problem) else 0.0
        return min(max(backoff, asked), self._max_wait)

    def close(self) -> None:
        for node in self._nodes:
            node.close()

    def _any_node(self, make: Callable[[], T]) -> T:
        """Makes the call at the first node that takes a connection: the others have seen nothing
        of it."""
        for _ in self._nodes[1:]:
            try:
                return make()
            except NeverSent:
                pass
        return make()

    def _once(self, r: Request, deadline: float) -> Any:
        exchange, pass_over = self._send(r, deadline)
        try:
            body = exchange.read()
        except (OSError, http.client.HTTPException) as err:
            pass_over()
            raise Unanswered(f"carillon: {r.method} {r.path}: {err}") from err
        try:
            return json.loads(body) if body else None
        except ValueError as err:  # it came from something between us and the node
            raise Unanswered(f"carillon: {r.method} {r.path}: the answer cannot be read: {err}") from err

    def _send(self, r: Request, deadline: float) -> Tuple[_Exchange, Callable[[], None]]:
        """Makes the call at one node. After a failure, and a 503, the next call goes to the next
        node."""
        at, leader = self._current, self._leaders.node(r.topic, r.timer)
        index = at % len(self._nodes) if leader is None else leader

        def pass_over() -> None:
            if leader is not None:
                self._leaders.forget(r.topic, r.timer)
            if self._current == at and at % len(self._nodes) == index:
                self._current = at + 1

        headers, body = {**self._headers, **r.headers}, None
        if r.body is not None:
            body, headers["Content-Type"] = encode(r.body), "application/json"
        query = urlencode([(name, _text(v)) for name, v in r.query.items() if v is not None], doseq=True)
        target = r.path + ("?" + query if query else "")
        try:
            exchange = self._nodes[index].request(r.method, target, headers, body, deadline, r.cancel)
            answer = exchange.response
            self._leaders.learn(answer.headers.get("Carillon-Leader") or "")
            if 200 <= answer.status < 300:
                return exchange, pass_over
            text = exchange.read()
        except NeverSent as err:
            pass_over()
            raise NeverSent(f"carillon: {r.method} {r.path}: {err}") from err
        except (OSError, http.client.HTTPException) as err:
            pass_over()
            raise Unanswered(f"carillon: {r.method} {r.path}: {err or type(err).__name__}") from err
        if answer.status == 503:
            pass_over()
        raise read_problem(answer.status, dict(answer.headers), text)


class _Node:
    """Connections to one node. Those that are idle, at most _MAX_IDLE, wait for the next
    request."""

    def __init__(self, url: str, context: Optional[ssl.SSLContext]) -> None:
        u = urlsplit(url)
        if u.scheme not in ("http", "https") or not u.hostname or u.username is not None or u.query or u.fragment:
            raise ValueError(f"carillon: {url!r} is not an address such as http://127.0.0.1:7700")
        self._host, self._port = u.hostname, u.port or (443 if u.scheme == "https" else 80)
        self.address = f"[{u.hostname}]:{self._port}" if ":" in u.hostname else f"{u.hostname}:{self._port}"
        self._prefix = u.path.rstrip("/")
        self._context = (context or ssl.create_default_context()) if u.scheme == "https" else None
        self._lock = threading.Lock()
        self._idle: Deque[Tuple[float, http.client.HTTPConnection]] = deque()  # the one used last is at the right

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: Optional[bytes], deadline: float,
        cancel: Optional[Cancel],
    ) -> _Exchange:
        connection = self._take() or self._connect(max(deadline - time.monotonic(), 0.001))
        timed = _TimedSocket(connection.sock, deadline)
        connection.response_class = lambda _, **options: http.client.HTTPResponse(timed, **options)  # type: ignore
        try:
            if cancel:
                cancel.watch(timed.sock)
            timed.set_timeout()
            connection.request(method, self._prefix + target, body, headers)
            return _Exchange(self, connection, timed, connection.getresponse(), cancel)
        except BaseException:
            connection.close()
            if cancel:
                cancel.watch(None)
            raise

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        limit = min(timeout, _CONNECT_TIMEOUT)
        connection = http.client.HTTPConnection(self._host, self._port, timeout=limit)
        if self._context is not None:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=limit, context=self._context)
        try:
            connection.connect()
        except OSError as err:
            connection.close()
            raise NeverSent(str(err)) from err
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _take(self) -> Optional[http.client.HTTPConnection]:
        """An idle connection that the node has not closed."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                used, connection = self._idle.pop()
            if time.monotonic() - used < _IDLE_SECONDS and not _readable(connection.sock):
                return connection
            connection.close()

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.append((time.monotonic(), connection))
            surplus = [self._idle.popleft()[1]] if len(self._idle) > _MAX_IDLE else []
        for one in surplus:
            one.close()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, deque()
        for _, connection in idle:
            connection.close()


def _readable(sock: socket.socket) -> bool:
    """Whether there is something to read. At an idle connection that is its end."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


class _TimedSocket:
    """A socket from which nothing is read after the deadline, however little came at once."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self.sock, self.deadline = sock, deadline

    def set_timeout(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer did not arrive in time")
        self.sock.settimeout(left if left < threading.TIMEOUT_MAX else None)

    def makefile(self, mode: str) -> io.BufferedReader:
        """What HTTPResponse reads."""
        return io.BufferedReader(_TimedReader(self))


class _TimedReader(io.RawIOBase):
    def __init__(self, timed: _TimedSocket) -> None:
        self._timed, self._file = timed, timed.sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        self._timed.set_timeout()
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _Exchange:
    """A request that was sent, and its answer."""

    def __init__(
        self, node: _Node, connection: http.client.HTTPConnection, timed: _TimedSocket,
        response: http.client.HTTPResponse, cancel: Optional[Cancel],
    ) -> None:
        self._node, self._connection, self.timed, self.response, self._cancel = node, connection, timed, response, cancel

    def read(self) -> bytes:
        """Reads the whole answer, and gives the connection back."""
        try:
            body = self.response.read()
        except BaseException:
            self.close()
            raise
        if self._cancel:
            self._cancel.watch(None)
        self.response.close()  # of the connection it ends nothing: see will_close
        if self.response.will_close:
            self._connection.close()
        else:
            self._node.give_back(self._connection)
        return body

    def close(self) -> None:
        if self._cancel:
            self._cancel.watch(None)
        self.response.close()
        self._connection.close()


class Stream:
    """An answer that is read as it comes."""

    def __init__(self, exchange: _Exchange, pass_over: Callable[[], None], silence: float) -> None:
        self._exchange, self.pass_over, self._silence = exchange, pass_over, silence

    def read(self) -> bytes:
        """What has come, at least a byte; none at the end."""
        self._exchange.timed.deadline = time.monotonic() + self._silence
        try:
            return self._exchange.response.read1(1 << 16)
        except (OSError, http.client.HTTPException) as err:
            self.pass_over()
            raise Unanswered(f"carillon: the answer broke off: {err or type(err).__name__}") from err

    def close(self) -> None:
        self._exchange.close()


def encode(value: Any) -> bytes:
    """JSON. A datetime, which must have a zone, is RFC 3339; a timedelta a duration; bytes are
    base64."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_encode_other).encode()
    except (ValueError, TypeError, RecursionError) as err:
        if str(err).startswith("carillon: "):
            raise
        kind = TypeError if isinstance(err, TypeError) else ValueError
        raise kind(f"carillon: the body cannot be sent as JSON: {err}") from err


def _encode_other(value: Any) -> str:
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError(f"carillon: {value!r} has no time zone: give tzinfo, or at_local and zone")
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)}us"
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    raise TypeError(f"carillon: {type(value).__name__} cannot be sent as JSON")


def _text(value: Any) -> Any:
    """A query parameter's value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return _encode_other(value)
    if isinstance(value, (list, tuple)):
        return [_text(one) for one in value]
    return utf8(value) if isinstance(value, str) else value
