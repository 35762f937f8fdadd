// A receiver of Carillon's calls that does everything once. Node.js 18 or newer, nothing to install:
//
// SECRET=whsec_… node receiver.mjs 127.0.0.1:7780 receiver.log
//
// Where the topic signs with a key, PUBLIC_KEY=whpk_… instead.
import crypto from "node:crypto";
import fs from "node:fs";
import http from "node:http";

const SIGNED = ["webhook-id", "webhook-timestamp", "carillon-topic", "carillon-timer",
  "carillon-due", "carillon-attempt", "carillon-fence", "carillon-receipt"];
const MAX_BODY = 1 << 20;

// bySecret and byKey return whether a signature, v1,… or v1a,…, is that of a text.
function bySecret(secret) {
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  return (text, one) => {
    const want = Buffer.from("v1," + crypto.createHmac("sha256", key).update(text).digest("base64"));
    const given = Buffer.from(one);
    return given.length === want.length && crypto.timingSafeEqual(given, want);
  };
}

function byKey(publicKey) {
  const x = Buffer.from(publicKey.replace(/^whpk_/, ""), "base64").toString("base64url");
  const key = crypto.createPublicKey({ format: "jwk", key: { kty: "OKP", crv: "Ed25519", x } });
  return (text, one) => one.startsWith("v1a,") && crypto.verify(null, text, key, Buffer.from(one.slice(4), "base64"));
}

const signedBy = process.env.PUBLIC_KEY ? byKey(process.env.PUBLIC_KEY) : bySecret(process.env.SECRET);

// verify returns what is wrong with a call, "" when it is signed and new.
function verify(headers, body) {
  const stamp = headers["webhook-timestamp"] ?? "";
  if (!/^\d+$/.test(stamp) || Math.abs(Date.now() / 1000 - Number(stamp)) > 300) return "too old, or not signed";
  const message = Buffer.concat([Buffer.from(`${headers["webhook-id"] ?? ""}.${stamp}.`), body]);
  const values = Buffer.from(["carillon-v1", ...SIGNED.map((name) => headers[name] ?? "")].join("\n"));
  for (const [name, text] of [["webhook-signature", message], ["carillon-signature", values]]) {
    const given = (headers[name] ?? "").split(" ").slice(0, 16);
    if (!given.some((one) => signedBy(text, one))) return `${name} does not match`;
  }
  return "";
}

// Store keeps what was done, and how far each timer has come. One line, written at once and synced, is one transaction:
// it stands for that of your database, as README.md in this folder shows.
class Store {
  fences = new Map(); // topic/timer → the highest fence; a BigInt, as it outgrows a Number
  done = new Set(); // webhook-ids

  constructor(name) {
    this.file = fs.openSync(name, "a+");
    const text = fs.readFileSync(this.file, "latin1");
    const whole = text.lastIndexOf("\n") + 1; // what follows was cut off by a crash
    fs.ftruncateSync(this.file, whole);
    for (const line of text.slice(0, whole).split("\n").slice(0, -1)) this.apply(line.split(" "));
  }

  apply([fence, id, timer]) {
    this.fences.set(timer, BigInt(fence));
    this.done.add(id);
  }

  // receive returns the status to answer. It runs without a pause, so no two calls are in it.
  receive(call, body) {
    const timer = `${call["carillon-topic"]}/${call["carillon-timer"]}`;
    const fence = BigInt(call["carillon-fence"]);
    if (fence <= (this.fences.get(timer) ?? -1n)) return 409; // a later attempt has been here: this one was held up
    const repeated = this.done.has(call["webhook-id"]); // done, but the answer was lost
    const line = [fence, call["webhook-id"], timer, repeated ? "-" : body.toString("base64")];
    fs.writeSync(this.file, line.join(" ") + "\n");
    fs.fsyncSync(this.file);
    this.apply(line);
    if (!repeated) console.log(`did ${timer} attempt ${call["carillon-attempt"]}`);
    return 200;
  }
}

const [host, port] = process.argv[2].split(/:(?=\d+$)/);
const store = new Store(process.argv[3]);
http.createServer((request, response) => {
  const parts = [];
  let size = 0;
  request.on("data", (part) => {
    size += part.length;
    if (size <= MAX_BODY) parts.push(part);
  });
  request.on("end", () => {
    if (size > MAX_BODY) return response.writeHead(413).end();
    const body = Buffer.concat(parts);
    const wrong = verify(request.headers, body);
    if (wrong) return response.writeHead(401).end(wrong);
    response.writeHead(store.receive(request.headers, body)).end();
  });
}).listen(Number(port), host);
