"""A receiver of Carillon's calls that does everything once. Python 3.8 or newer, nothing to install:

SECRET=whsec_… python3 receiver.py 127.0.0.1:7780 receiver.db

Where the topic signs with a key, PUBLIC_KEY=whpk_… instead; that takes the package cryptography (Debian: python3-cryptography).
"""
import base64, hashlib, hmac, os, sqlite3, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SIGNED = ("webhook-id", "webhook-timestamp", "carillon-topic", "carillon-timer",
          "carillon-due", "carillon-attempt", "carillon-fence", "carillon-receipt")
MAX_BODY = 1 << 20


def by_secret(secret):
    key = base64.b64decode(secret.removeprefix("whsec_"))

    def signed(text, one):
        want = "v1," + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
        return hmac.compare_digest(want.encode(), one.encode())
    return signed


def by_key(public):
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public.removeprefix("whpk_")))

    def signed(text, one):
        if not one.startswith("v1a,"):
            return False
        try:
            key.verify(base64.b64decode(one[4:], validate=True), text)
            return True
        except (InvalidSignature, ValueError):
            return False
    return signed


SIGNED_BY = by_key(os.environ["PUBLIC_KEY"]) if "PUBLIC_KEY" in os.environ else by_secret(os.environ["SECRET"])


def verify(headers, body):
    """Raises ValueError unless the call is signed and is new."""
    stamp = headers.get("webhook-timestamp", "")
    if not (stamp.isascii() and stamp.isdecimal()) or abs(time.time() - int(stamp)) > 300:
        raise ValueError("too old, or not signed")
    message = f"{headers.get('webhook-id', '')}.{stamp}.".encode() + body
    values = "\n".join(["carillon-v1"] + [headers.get(name, "") for name in SIGNED]).encode()
    for name, text in (("webhook-signature", message), ("carillon-signature", values)):
        given = headers.get(name, "").split(" ")[:16]
        if not any(SIGNED_BY(text, one) for one in given):
            raise ValueError(name + " does not match")


class Store:
    """What was done, and how far each timer has come: changed in one transaction."""

    def __init__(self, name):
        self.lock = threading.Lock()
        self.db = sqlite3.connect(name, check_same_thread=False)
        self.db.executescript("""
            CREATE TABLE IF NOT EXISTS fences (topic, timer, fence TEXT, PRIMARY KEY (topic, timer));
            CREATE TABLE IF NOT EXISTS done (webhook_id PRIMARY KEY, at INTEGER);
            CREATE TABLE IF NOT EXISTS orders (closed);  -- stands for your tables
        """)

    def receive(self, call, body):
        """The status to answer. Nothing is changed unless all of it is."""
        with self.lock, self.db as db:
            moved = db.execute(
                "INSERT INTO fences VALUES (?, ?, ?) ON CONFLICT (topic, timer)"
                " DO UPDATE SET fence = excluded.fence WHERE excluded.fence > fences.fence",
                (call["carillon-topic"], call["carillon-timer"], call["carillon-fence"].zfill(20)))  # SQLite's integers end at 2^63
            if moved.rowcount == 0:
                return 409  # a later attempt has been here: this one was held up on its way
            fresh = db.execute("INSERT OR IGNORE INTO done VALUES (?, ?)", (call["webhook-id"], int(time.time())))
            if fresh.rowcount == 0:
                return 200  # done, but the answer was lost
            db.execute("INSERT INTO orders VALUES (?)", (body,))
        print("did", call["carillon-topic"] + "/" + call["carillon-timer"], "attempt", call["carillon-attempt"], flush=True)
        return 200


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        size = int(self.headers.get("content-length", 0))
        if size > MAX_BODY:
            self.close_connection = True
            return self.answer(413)
        body = self.rfile.read(size)
        try:
            verify(self.headers, body)
        except ValueError as reason:
            return self.answer(401, str(reason))
        self.answer(store.receive(self.headers, body))

    def answer(self, status, text=""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    host, _, port = sys.argv[1].rpartition(":")
    store = Store(sys.argv[2])
    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
