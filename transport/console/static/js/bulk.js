// Changes of all timers that a filter selects: reschedule, pause, resume, cancel.
import { call, html, local, many, num, topicPath, useState } from "./lib.js";
import { MomentInput, momentOf } from "./forms.js";
import { Action, Input, say } from "./parts.js";

// changeWords is the answer to a bulk change, or to its dry run.
const changeWords = (r, verb) => `${many(r.matched, "timer matches", "timers match")}; ${num(r.changed)} ${r.dry_run ? "would be " : ""}${verb}${r.skipped ? `, ${num(r.skipped)} skipped because a call is running` : ""}.${r.first ? ` The first is ${r.first}.` : ""}`;

const moves = { shift: "by", at_ms: "to", not_before: "to no earlier than" };

function MoveFields() {
  const [by, setBy] = useState("shift");
  return html`<label class="field">Move <select name="by" value=${by} onChange=${(e) => setBy(e.target.value)}>${Object.entries(moves).map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select></label>
    ${by === "shift" ? html`<${Input} name="shift" label="Duration" value="+1h" placeholder="+1h, -30m, 2d" required />` : html`<${MomentInput} name="moment" label="Date and time" value=${local(Date.now() + 3600000)} />`}`;
}

// Bulk changes all timers that a filter selects, after a dry run.
export function Bulk({ topic, filter, words, done }) {
  const given = Object.fromEntries(Object.entries(filter).filter(([, v]) => v && v.length !== 0));
  const which = Object.keys(given).some((k) => k !== "state") ? { filter: given } : { filter: given, all: true };
  const send = (path, more, form) => {
    const body = { ...which }, by = form.get("by");
    if (by) body[by] = by === "shift" ? form.get("shift").trim() : momentOf(form.get("moment"));
    return call("POST", `${topicPath(topic)}/${path}${more}`, body);
  };
  const act = (path, verb) => ({ dryRun: true, preview: async (form) => changeWords(await send(path, "?dry_run=true", form), verb), run: async (form) => { say(changeWords(await send(path, "", form), verb)); done(); } });
  return html`<div class="row">
    <${Action} needs="add" key=${"move" + words} label="Reschedule all" title="Reschedule timers" verb="Reschedule" ...${act("reschedule", "rescheduled")}><p>${words}</p><${MoveFields} /><//>
    <${Action} needs="add" key=${"pause" + words} label="Pause all" title="Pause timers?" verb="Pause timers" ...${act("pause-timers", "paused")}><p>${words}</p><p>They are not called until they are resumed.</p><//>
    <${Action} needs="add" key=${"resume" + words} label="Resume all" title="Resume timers?" verb="Resume timers" ...${act("resume-timers", "resumed")}><p>${words}</p><p>Those whose time has passed are called now.</p><//>
    <${Action} needs="cancel" key=${"cancel" + words} label="Cancel all" title="Cancel timers?" verb="Cancel timers" dismiss="Close" danger ...${act("cancel", "cancelled")}><p>${words}</p><p>They will not be called. This cannot be undone.</p><//></div>`;
}
