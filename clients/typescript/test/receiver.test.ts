/** Which calls a receiver believes, and what it answers. */
import assert from "node:assert/strict";
import { createHmac, createPrivateKey, sign } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { Webhook } from "standardwebhooks";
import { Fences, Receiver, RetryAfter, Stop, newSecret, newSigningKey, type Delivery, type Handler, type ReceiverOptions } from "../src/index.js";

// The example of docs/callbacks.md.
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const publicKey = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=";
const body = Buffer.from('{"test": 2432232314}');
const values = {
  "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
  "carillon-topic": "orders", "carillon-timer": "{o-77}close", "carillon-due": "1614265330000", "carillon-attempt": "2", "carillon-fence": "7",
};
const bySecret = {
  ...values,
  "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
  "carillon-signature": "v1,gUfpyP4Ajg1OYhURY2R8wSPredmP9gSByJdTfvLph9Q=",
};
const byKey = {
  ...values,
  "webhook-signature": "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
  "carillon-signature": "v1a,dX/VnLFd2k+eGQbgXZG3eQ+MigzyCLITKSfGFrmFKLB3G1j8BedBThWyqZmCgQ2P7chOnlXMheqyFPAqLTbJBA==",
};
const now = () => 1614265330_000;
const receive = (o: ReceiverOptions, headers: Record<string, string>, b = body) => new Receiver({ now, ...o }).receive(headers, b);

test("the examples of the manual are good, by secret and by key", async () => {
  for (const [o, headers] of [[{ secrets: [secret] }, bySecret], [{ publicKeys: [publicKey] }, byKey], [{ secrets: [newSecret(), secret], publicKeys: [publicKey] }, bySecret]] as [ReceiverOptions, Record<string, string>][]) {
    const d = await receive(o, headers);
    assert.deepEqual([d.topic, d.timer, d.id, +d.due, d.attempt, d.fence, d.receipt, d.json()], ["orders", "{o-77}close", values["webhook-id"], 1614265330000, 2, 7, "", { test: 2432232314 }]);
  }
  // The library of the scheme makes the same.
  assert.equal(new Webhook(secret).sign(values["webhook-id"], new Date(now()), body.toString()), bySecret["webhook-signature"]);
});

test("any change makes a call bad", async () => {
  for (const [o, good] of [[{ secrets: [secret] }, bySecret], [{ publicKeys: [publicKey] }, byKey]] as [ReceiverOptions, Record<string, string>][]) {
    for (const name of Object.keys(good)) {
      const { [name]: value = "", ...without } = good;
      await assert.rejects(receive(o, without), { status: 401 }, `without ${name}`);
      await assert.rejects(receive(o, { ...good, [name]: `${value}0` }), { status: 401 }, `another ${name}`);
    }
    await assert.rejects(receive(o, { ...good, "carillon-receipt": "r" }), { status: 401 });
    await assert.rejects(receive(o, good, Buffer.from("{}")), { status: 401 });
    for (const ms of [-300_001, 300_001]) await assert.rejects(receive({ ...o, now: () => now() + ms }, good), { status: 401 });
    await receive({ ...o, now: () => now() + 300_000 }, good);
    await receive(o, { ...good, "webhook-signature": `v1,AAAA ${good["webhook-signature"]}` });
    await assert.rejects(receive(o, { ...good, "webhook-signature": `${"v1,A ".repeat(16)}${good["webhook-signature"]}` }), { status: 401 });
  }
  await assert.rejects(receive({ secrets: [newSecret()] }, bySecret), { status: 401 });
  await assert.rejects(receive({ publicKeys: [newSigningKey().publicKey] }, byKey), { status: 401 });
  await assert.rejects(receive({ secrets: [secret] }, byKey), { status: 401 });
});

test("bodies are signed as bytes", async () => {
  const bytes = Buffer.from([0xff, 0, 0xfe]);
  const key = Buffer.from(secret.slice(6), "base64");
  const text = Buffer.concat([Buffer.from(`${values["webhook-id"]}.${values["webhook-timestamp"]}.`), bytes]);
  const d = await receive({ secrets: [secret] }, { ...bySecret, "webhook-signature": `v1,${createHmac("sha256", key).update(text).digest("base64")}` }, bytes);
  assert.deepEqual(d.body, bytes);
});

test("new keys are of the form that nodes take", () => {
  const { privateKey, publicKey } = newSigningKey();
  const pair = Buffer.from(privateKey.slice(5), "base64");
  assert.equal(pair.length, 64);
  const key = createPrivateKey({ key: { kty: "OKP", crv: "Ed25519", d: pair.subarray(0, 32).toString("base64url"), x: pair.subarray(32).toString("base64url") }, format: "jwk" });
  assert.equal(sign(null, Buffer.from("x"), key).length, 64);
  new Receiver({ secrets: [newSecret()], publicKeys: [publicKey] });
});

test("options that would believe anybody, or nobody, are refused", () => {
  for (const o of [{}, { unsigned: true, secrets: [secret] }, { secrets: ["x"] }, { secrets: ["whsec_AAAA"] }, { secrets: [`${secret}=`] }, { publicKeys: ["whpk_AAAA"] }]) {
    assert.throws(() => new Receiver(o), TypeError, JSON.stringify(o));
  }
});

test("a lease that is over is dropped; the timers called last are remembered", () => {
  const fences = new Fences(2);
  assert.deepEqual([fences.admit("o", "a", 7), fences.admit("o", "a", 7), fences.admit("o", "a", 6), fences.admit("p", "a", 6), fences.admit("o", "a", 8)], [true, false, false, true, true]);
  assert.ok(fences.admit("o", "b", 1)); // and p/a is forgotten
  assert.deepEqual([fences.admit("o", "a", 8), fences.admit("p", "a", 1)], [false, true]);
});

test("answers, by node:http and by fetch", async () => {
  let handle: Handler = () => undefined;
  const options = { unsigned: true, maxBody: 1000 };
  const server = createServer(new Receiver(options).listener((d) => handle(d)));
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const byFetch = new Receiver(options).fetch((d) => handle(d));
  let fence = 0;
  const got: Delivery[] = [];
  for (const [run, status, retryAfter] of [
    [() => undefined, 204, null],
    [() => 202, 202, null],
    [() => Promise.reject(new Error("no")), 500, null],
    [() => Promise.reject(new RetryAfter(1500, "later")), 503, "2"],
    [() => Promise.reject(new Stop("never")), 410, null],
  ] as [Handler, number, string | null][]) {
    handle = (d) => (got.push(d), run(d));
    const init = { method: "POST", headers: { ...values, "content-type": "image/png", "carillon-fence": String(++fence), "carillon-asked": "5", "ce-specversion": "1.0", "ce-id": "x" }, body: "{}" };
    for (const answer of [await fetch(url, init), await byFetch(new Request(url, init))]) assert.deepEqual([answer.status, answer.headers.get("retry-after")], [status, retryAfter]);
    for (const answer of [await fetch(url, init), await byFetch(new Request(url, init))]) assert.equal(answer.status, 409);
    const large = { ...init, body: "x".repeat(100_000) };
    for (const answer of [await fetch(url, large), await byFetch(new Request(url, large))]) assert.equal(answer.status, 413);
    assert.equal((await fetch(url)).status, 400);
  }
  assert.equal(got.length, 10);
  assert.deepEqual([got[0]?.asked, got[0]?.contentType, got[0]?.cloudEvent], [new Date(5), "image/png", { id: "x", source: "", type: "", subject: "", time: "" }]);
  server.closeAllConnections();
  server.close();
});

test("a call of many timers is checked, taken apart and answered with what failed", async () => {
  const part = (id: string, fence: number, more: object) => ({ topic: "orders", id, webhook_id: `msg_${id}`, due_ms: 1614265330000, attempt: 1, fence, ...more });
  const call = (...timers: object[]) => JSON.stringify({ timers });
  const key = Buffer.from(secret.slice(6), "base64");
  const signed = (body: string) => {
    const sign = (text: string) => `v1,${createHmac("sha256", key).update(text).digest("base64")}`;
    const lines = ["carillon-v1", values["webhook-id"], values["webhook-timestamp"], "orders", "", "", "", "", ""];
    return {
      "webhook-id": values["webhook-id"], "webhook-timestamp": values["webhook-timestamp"], "carillon-topic": "orders",
      "webhook-signature": sign(`${values["webhook-id"]}.${values["webhook-timestamp"]}.${body}`), "carillon-signature": sign(lines.join("\n")),
    };
  };
  let got: Delivery[] = [];
  const handler = new Receiver({ secrets: [secret], now }).fetchOfMany((list) => {
    got = list;
    return list.map((d) => (d.body.toString().includes("bad") ? new Error("card declined") : undefined));
  });
  const send = async (body: string, headers: Record<string, string> = signed(body)) => {
    got = [];
    const answer = await handler(new Request("http://a/", { method: "POST", headers, body }));
    return [answer.status, await answer.text(), got.map((d) => `${d.timer} ${d.id} ${d.body.toString()}`)];
  };
  const body = call(part("a", 7, { asked_ms: 5, payload: { n: 1 } }), part("b", 8, { payload_base64: "YmFk" }), part("c", 9, {}));
  assert.deepEqual(await send(body), [200, '{"failed":[{"webhook_id":"msg_b","error":"card declined"}]}', ['a msg_a {"n":1}', "b msg_b bad", "c msg_c "]]);
  assert.deepEqual(got.map((d) => d.asked), [new Date(5), undefined, undefined]);
  const again = call(part("a", 7, { payload: 1 }), part("b", 10, { payload: 1 })); // the first lease is over
  const stale = (id: string) => `{"webhook_id":"msg_${id}","error":"a later attempt of this timer has been here"}`;
  assert.deepEqual(await send(again), [200, `{"failed":[${stale("a")}]}`, ["b msg_b 1"]]);
  // A proxy's copy: the handler of the first may fail yet.
  assert.deepEqual(await send(again), [200, `{"failed":[${stale("a")},${stale("b")}]}`, []]);
  for (const bad of ["{}", "[]", "x", call({}), '{"timers":[5]}', '{"timers":[null]}', '{"timers":5}']) assert.equal((await send(bad))[0], 400, bad);
  assert.equal((await send(body, { ...signed(body), "carillon-signature": bySecret["carillon-signature"] }))[0], 401);
  // A retry comes alone.
  assert.deepEqual(await send(body.slice(1), bySecret), [401, "the signature is not good", []]);
  assert.deepEqual(await send('{"test": 2432232314}', bySecret), [204, "", [`{o-77}close ${values["webhook-id"]} {"test": 2432232314}`]]);
});

test("payloads of a call of many have the bytes and the type that a retry, which comes alone, has", async () => {
  const payloads = [
    '{"id":12345678901234567}', '{"n": 1.50,"b":[ -0.0, 1E400,"\\u00e9 é\\/", "}],\\"{[\\\\" ], "payload" : 1 }', '{"payload":[{}]}', "null", '""', "[ ]", '"x, y"', `"${'\\"'.repeat(3e6)}"`, '{"":{"":1}}',
  ];
  const parts = payloads.map((p, n) => ` { "payload" : ${p} , "topic":"orders","id":"${n}","webhook_id":"msg","due_ms":1,"attempt":1,"fence":1, "key":"payload"}`);
  const rest = '"topic":"orders","webhook_id":"msg","due_ms":1,"attempt":1,"fence":1';
  parts.push(`{${rest},"id":"b","payload_base64":"AAE="}`, `{${rest},"id":"t","payload_base64":"","content_type":"image/png"}`, `{${rest},"id":"none"}`);
  parts.push(`{${rest},"id":"last","payload":7}`);
  const body = `{"more":[{"payload":7}], "timers":[${parts.join(",")} ] ,"other":[{"payload":8}]}\n`;
  const got = await new Receiver({ unsigned: true }).receiveMany({ "webhook-id": "msg" }, Buffer.from(body));
  const want = [...payloads.map((p) => [p, "application/json"]), ["\0\x01", "application/octet-stream"], ["", "image/png"], ["", ""], ["7", "application/json"]];
  assert.deepEqual(got.map((d) => [d.body.toString(), d.contentType]), want);
});
