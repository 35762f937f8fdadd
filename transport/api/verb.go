package api

import (
	"math/bits"

	"carillon/timer"
)

// verb is an action of a client on one timer, in a request of its own or in a batch.
type verb uint8

const (
	noVerb verb = iota
	vAdd
	vPut
	vPatch
	vCancel
	vFire
)

var verbs = [...]struct {
	name   string // in a batch
	kind   timer.Kind
	fields field
	scope  scope
}{
	vAdd:    {"add", timer.Add, specFields | fID | fKey | fMerge | fMaxWait | fIfLate, scopeAdd},
	vPut:    {"put", timer.Put, specFields | fID | fKey | fMerge | fMaxWait | fIfLate, scopeAdd},
	vPatch:  {"patch", timer.Modify, specFields, scopeAdd},
	vCancel: {"cancel", timer.Cancel, 0, scopeCancel},
	vFire:   {"fire", timer.Fire, 0, scopeAdd},
}

func verbOf(op string) verb {
	for v := vAdd; v <= vFire; v++ {
		if verbs[v].name == op {
			return v
		}
	}
	return noVerb
}

// check refuses fields that do not go together, or with the verb. The values by themselves are
// good.
func (in *timerRequest) check(v verb, inBatch bool) *problem {
	allowed := verbs[v].fields
	if inBatch {
		allowed |= fOp | fID
		if v != vAdd {
			allowed |= fIfMatch
		}
	}
	if extra := in.given &^ allowed; extra != 0 {
		return badf(unknownField, "unknown field %q for %s", extra.name(), verbs[v].name)
	}
	mayReset := field(0)
	if v == vPatch {
		mayReset = resettable
	}
	if null := in.null &^ mayReset; null != 0 {
		return badf(badRequest, "%s: must not be null", null.name())
	}
	if p := in.checkTime(v); p != nil {
		return p
	}
	if in.given&fPayload != 0 && in.given&fPayload64 != 0 {
		return bad(badRequest, "payload and payload_base64: give one")
	}
	if p := in.checkID(v); p != nil {
		return p
	}
	return in.checkMerge()
}

func (in *timerRequest) checkTime(v verb) *problem {
	n := bits.OnesCount64(uint64(in.given & timeFields))
	switch {
	case n > 1:
		return bad(badTime, "give one of at, at_ms, at_local, delay, delay_ms, not several")
	case n == 0 && (v == vAdd || v == vPut) && !in.hasCron():
		return bad(badTime, "a time is required: one of at, at_ms, at_local, delay, delay_ms; only repeat.cron makes its own")
	}
	if p := in.when.resolve(in.given); p != nil {
		return p
	}
	if v == vPatch && (in.given|in.null)&specFields&^(fCallback|fRetry) == 0 {
		return bad(badRequest, "nothing to change")
	}
	return nil
}

const idRule = "must be 1–128 of A-Z a-z 0-9 _ . : @ -, optionally led by one {key} of 1–64"

func (in *timerRequest) checkID(v verb) *problem {
	if in.given&fKey != 0 && !validKey(in.key) {
		return bad(badName, "key: must be 1–64 of A-Z a-z 0-9 _ . : @ -")
	}
	if in.given&fID == 0 {
		if v != vAdd && in.id == "" {
			return badf(badRequest, "id: is required for %s", verbs[v].name)
		}
	} else if !validID(in.id) {
		return bad(badName, "id: "+idRule)
	}
	if in.given&fKey != 0 && in.id != "" {
		if key, has := timer.KeyOf(in.id); !has || key != in.key {
			return badf(badName, "key: the id must start with {%s}", in.key)
		}
	}
	return nil
}
