package timers

import (
	"crypto/sha256"
	"encoding/hex"

	"carillon/timer"
	"carillon/transport/api/spec"
	"carillon/transport/api/web"
)

// nameByRequest gives an add the id that its Idempotency-Key makes: the key itself behind a prefix,
// or, where it is no id, a hash of it. So a repetition, at any node, meets the same timer.
func (tr *timerRequest) nameByRequest(key string) *web.Problem {
	if tr.given&spec.FID != 0 {
		return web.Bad(web.BadRequest, "give an id or an Idempotency-Key, not both: an add with an id may be repeated as it is")
	}
	if tr.given&spec.FMerge != 0 && tr.merge != "reject" {
		return web.Badf(web.BadRequest, "merge: %s does not go with an Idempotency-Key", tr.merge)
	}
	name := "idem-" + key
	if !web.ValidID(name) {
		sum := sha256.Sum256([]byte(key))
		name = "idem.sha256-" + hex.EncodeToString(sum[:16])
	}
	if tr.key != "" {
		name = "{" + tr.key + "}" + name
	}
	tr.id, tr.merge, tr.repeated = name, "reject", true
	tr.given |= spec.FMerge
	return nil
}

// keyInUse makes of the refusal of an id that is in use that of another add under a key that has
// been used: as the draft has it, 422 and not 409.
func keyInUse(p *web.Problem) {
	p.Status, p.Detail = 422, "the Idempotency-Key has been used for an add with other content"
}

// pastMs is how long an instant must be over for an add of it to count as one that may be repeated.
// Adds for this very moment, which are a little late when they arrive, are spared the search: an
// add that they may repeat has ended within the time for which the shard remembers it.
const pastMs = 2000

// maybeMade reports whether the instant of an add, or of a put without If-Match, is past, so that
// it may be a repeated one whose timer the shard has forgotten.
func maybeMade(in *timerRequest, topic *timer.Topic, v verb, nowMs int64) bool {
	return in.cmd.Merge != timer.MergeCollect && (v == vAdd || v == vPut && in.ifMatch == 0) && topic.ID != 0 && in.absolute() && nowMs-in.when.Ms > pastMs && (!in.unnamed || topic.Policy.ByContent)
}

// madeBefore finds the outcome of a change that maybeMade has, if it was made before: a client that
// had no answer may repeat it at any time. It is nil where the shard still remembers the timer,
// since the shard's answer is in order with all changes, where it cannot be found, or where it was
// cancelled: then the add makes a new one, unless the request has an Idempotency-Key.
func madeBefore(rq *web.Request, in *timerRequest, topic *timer.Topic) (*timer.Timer, error) {
	t, err := rq.Core.Timers.Timer(rq.Base, in.shard(rq, topic), topic.ID, in.id)
	if err != nil || t != nil && !t.State.Over() {
		return nil, err
	}
	q := &timer.HistoryQuery{Topic: topic.ID, ID: in.id, Content: in.cmd.Content, States: overStates, Newest: true, Limit: 1, Sure: true}
	if confine(rq, q, topic) {
		return nil, nil
	}
	list, _, err := rq.Core.Timers.History(rq.Base, q)
	if err != nil || len(list) == 0 || list[0].Timer.State == timer.Cancelled && !in.repeated {
		return nil, err
	}
	return list[0].Timer, nil
}

// absolute reports whether the time was given as an instant.
func (tr *timerRequest) absolute() bool { return tr.given&spec.TimeFields != 0 && !tr.when.Delay }
