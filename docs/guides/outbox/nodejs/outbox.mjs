// Adds the timers that an application has written to its table outbox, and deletes their rows. Any
// number of these programs may run, and each may be killed at any time.
import { setTimeout } from "node:timers/promises";
import pg from "pg";
import { Client, Problem } from "carillon-client";

const most = 500; // rows in one transaction; a batch has up to 1,000
const db = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 1 });
const carillon = new Client(process.env.CARILLON_URL.split(","), { token: process.env.CARILLON_TOKEN });

// send adds timers. Of a batch that is refused as a whole the halves are sent, so that one row does
// not hold up the others.
async function send(topic, ops) {
  try {
    return await carillon.batch(topic, ops, { brief: true });
  } catch (error) {
    if (!(error instanceof Problem) || ![400, 404, 413, 422].includes(error.status)) throw error;
    if (ops.length === 1) return [{ error }];
    const half = Math.ceil(ops.length / 2);
    return [...await send(topic, ops.slice(0, half)), ...await send(topic, ops.slice(half))];
  }
}

// relay adds some timers and then deletes their rows. A crash between the two repeats the adds,
// which changes nothing: ids and times are those of the rows.
async function relay() {
  const tx = await db.connect();
  let failed;
  try {
    await tx.query("BEGIN");
    const { rows } = await tx.query(
      "SELECT seq, topic, id, due, payload FROM outbox WHERE error IS NULL ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED", [most]);
    const batches = {};
    let refused = 0;
    for (const row of rows) (batches[row.topic] ??= []).push(row);
    for (const [topic, batch] of Object.entries(batches)) {
      const ops = batch.map(({ id, due, payload }) => ({ op: "add", id, at: due.toISOString(), payload }));
      const results = await send(topic, ops);
      for (const [i, { error }] of results.entries()) {
        if (error?.retryable) throw new Error(error.detail);
        if (!error) continue;
        refused++;
        await tx.query("UPDATE outbox SET error = $2 WHERE seq = $1", [batch[i].seq, `${error.code}: ${error.detail}`]); // somebody has to look at it
      }
      await tx.query("DELETE FROM outbox WHERE seq = ANY($1)", [batch.filter((_, i) => !results[i].error).map((row) => row.seq)]);
    }
    await tx.query("COMMIT");
    if (rows.length > refused) console.log("rows sent:", rows.length - refused);
    if (refused > 0) console.log("rows refused:", refused);
    return rows.length;
  } catch (error) {
    failed = error;
    throw error;
  } finally {
    tx.release(failed); // a connection with an open transaction is closed
  }
}

let running = true;
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => { running = false; });
while (running) {
  const taken = await relay().catch((error) => { console.error(error.message); return -1; });
  if (taken === 0 && process.argv.includes("--once")) break;
  if (taken <= 0) await setTimeout(1000);
}
await db.end();
