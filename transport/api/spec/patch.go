package spec

import (
	"carillon/timer"
	"carillon/transport/api/web"
)

// PatchOf is the patch that sets the named fields of a timer to those of s: one that was given as
// null has its zero value there.
func PatchOf(s timer.Spec, named web.Fields) *timer.Patch {
	has := func(f web.Fields) bool { return named&f != 0 }
	return &timer.Patch{
		Spec: s, Due: has(TimeFields) || HasCron(&s), Payload: has(FPayload | FPayload64), ContentType: has(FContentType),
		Priority: has(FPriority), Weight: has(FWeight), Labels: has(FLabels), Expiry: has(FExpires), Repeat: has(FRepeat),
		URL: has(FURL), Method: has(FMethod), Headers: has(FHeaders), Timeout: has(FTimeout),
		MaxAttempts: has(FMaxAttempts), MinBackoff: has(FMinBackoff), MaxBackoff: has(FMaxBackoff),
		Multiplier: has(FMultiplier), Jitter: has(FJitter), OnDone: has(FOnDone), OnDead: has(FOnDead),
	}
}

// HasCron reports whether the timer finds its own times.
func HasCron(s *timer.Spec) bool { return s.Repeat != nil && s.Repeat.Cron != "" }
