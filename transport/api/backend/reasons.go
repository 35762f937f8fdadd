package backend

import (
	"slices"
	"strconv"

	"carillon/timer"
)

var reasonNames = []string{timer.MaxAttempts: "max_attempts", timer.Expired: "expired", timer.Stopped: "stopped", timer.Refused: "refused"}

// ReasonOf is the reason of a death by its name.
func ReasonOf(name string) (timer.Reason, bool) {
	i := max(0, slices.Index(reasonNames, name))
	return timer.Reason(i), i > 0
}

// ReasonName is how the API calls the reason of a death.
func ReasonName(r timer.Reason) string {
	if int(r) < len(reasonNames) && r > 0 {
		return reasonNames[r]
	}
	return "reason_" + strconv.Itoa(int(r))
}
