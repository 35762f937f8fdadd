"""Real nodes and nodes that only answer as they are asked to, for the tests."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

ROOT = Path(__file__).resolve().parents[3]  # of the repository
BINARY = os.environ.get("CARILLON_BINARY") or str(ROOT / "bin" / "carillon")

_port = 20_000 + os.getpid() * 11 % 11_000


def free_address() -> str:
    """A loopback address whose port is free. It lies below the system's ephemeral ports."""
    global _port
    while True:
        _port = 20_000 if _port >= 31_900 else _port + 1
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", _port))
            except OSError:
                continue
        return f"127.0.0.1:{_port}"


class Node:
    """A process of carillon serve."""

    def __init__(self, *flags: str) -> None:
        self.dir = tempfile.mkdtemp(prefix="carillon-node-")
        address = free_address()
        self.url = "http://" + address
        args = [BINARY, "serve", "--data", self.dir + "/data", "--http", address, *flags]
        self.process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def ready(self) -> Node:
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], 60)[0] or not self.process.stdout.readline():
            self.kill()
            raise RuntimeError("the node did not start")
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        shutil.rmtree(self.dir, ignore_errors=True)


def cluster() -> List[Node]:
    """Three nodes, when each shard has a leader."""
    gossip = [free_address() for _ in range(3)]
    key = Path(tempfile.mkdtemp(prefix="carillon-key-")) / "key"
    key.write_text("5a" * 32 + "\n")
    key.chmod(0o600)
    shared = ["--join", ",".join(gossip), "--gossip-key", str(key), "--shards", "4", "--bootstrap-expect", "3"]
    nodes = [Node("--name", f"n{i}", "--peer", free_address(), "--gossip", g, *shared) for i, g in enumerate(gossip)]
    for node in nodes:
        node.ready()

    def healthy() -> bool:
        for node in nodes:
            with urllib.request.urlopen(node.url + "/v1/cluster") as answer:
                view = json.load(answer)
            if not view["healthy"] or len(view["nodes"]) < 3:
                return False
        return True

    eventually(healthy)
    return nodes


def eventually(holds: Callable[[], object]) -> None:
    """Waits until something holds."""
    deadline = time.monotonic() + 60
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError("it did not come true in a minute")
        time.sleep(0.05)


class Server:
    """An HTTP server of a test."""

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler, bytes], None]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def any_method(self) -> None:
                answer(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = any_method

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = "http://" + self.host
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class FakeNode(Server):
    """A node that gives one reply after the other; the last one stays."""

    def __init__(self, *replies: Dict[str, Any]) -> None:
        self.replies = list(replies)
        self.seen: List[Any] = []
        self.closed = threading.Semaphore(0)  # connections that were closed after an answer
        super().__init__(self._answer)

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        self.seen.append((handler.command, handler.path, handler.headers, body))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if reply.get("cut"):
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        content = reply.get("body", {})
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        handler.send_response(reply.get("status", 200))
        for name, value in reply.get("headers", {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[: len(data) // 2] if reply.get("break_off") else data)
        if reply.get("then_close") or reply.get("break_off"):
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            self.closed.release()


def problem(status: int, code: str, headers: Optional[Dict[str, str]] = None) -> Dict[str, Any]:
    """A problem as a node answers it."""
    body = {"type": "about:blank", "title": code, "status": status, "detail": "it is " + code, "code": code}
    return {"status": status, "headers": headers or {}, "body": {**body, "retryable": status == 503}}
