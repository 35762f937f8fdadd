// Package spec reads and shows the parts of a timer that more than one resource has: its fields as
// a set, the callback, retries, times and the rules of merging.
package spec

import (
	"math/bits"
	"strings"

	"carillon/transport/api/web"
)

const (
	FOp web.Fields = 1 << iota
	FIfMatch
	FID
	FKey
	FAt
	FAtMs
	FDelay
	FDelayMs
	FPayload
	FPayload64
	FContentType
	FCallback
	FURL
	FMethod
	FHeaders
	FTimeout
	FPriority
	FLabels
	FExpires
	FMerge
	FMaxWait
	FRetry
	FMaxAttempts
	FMinBackoff
	FMaxBackoff
	FMultiplier
	FJitter
	FRepeat
	FIfLate
	FAtLocal
	FZone
	FOnDone
	FOnDead
	FWeight
	FCollectMax
	FPart

	TimeFields     = FAt | FAtMs | FDelay | FDelayMs | FAtLocal
	CallbackFields = FURL | FMethod | FHeaders | FTimeout
	RetryFields    = FMaxAttempts | FMinBackoff | FMaxBackoff | FMultiplier | FJitter
	SpecFields     = TimeFields | FZone | FPayload | FPayload64 | FContentType | FCallback | CallbackFields |
		FPriority | FLabels | FExpires | FRetry | RetryFields | FRepeat | FWeight | OutcomeFields
	// OutcomeFields are the fields for which null is not the topic's default, but none.
	OutcomeFields = FOnDone | FOnDead
	Resettable    = SpecFields &^ (TimeFields | FZone | FPayload)
)

// FieldNames are in the order of the bits of field.
var FieldNames = []string{
	"op", "if_match", "id", "key", "at", "at_ms", "delay", "delay_ms", "payload", "payload_base64", "content_type",
	"callback", "callback.url", "callback.method", "callback.headers", "callback.timeout",
	"priority", "labels", "expires_after", "merge", "max_wait",
	"retry", "retry.max_attempts", "retry.min_backoff", "retry.max_backoff", "retry.multiplier", "retry.jitter", "repeat", "if_late",
	"at_local", "zone", "on_done", "on_dead", "weight", "collect_max", "part",
}

// NameOf is the name of the first field of the set.
func NameOf(f web.Fields) string { return FieldNames[bits.TrailingZeros64(uint64(f))] }

// ownFields are a timer's own fields, not those in its objects, by name.
var ownFields = func() map[string]web.Fields {
	own := map[string]web.Fields{}
	for i, name := range FieldNames {
		if !strings.Contains(name, ".") {
			own[name] = 1 << i
		}
	}
	return own
}()

// FieldOf is one of a timer's own fields; 0: there is none of that name.
func FieldOf(name []byte) web.Fields { return ownFields[string(name)] }
