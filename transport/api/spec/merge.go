package spec

import (
	"slices"

	"carillon/timer"
	"carillon/transport/api/web"
)

// MergeRules are the values of merge, in the order of timer.Merge.
var MergeRules = []string{"reject", "keep", "replace", "debounce", "collect"}

func MergeRule(name string) timer.Merge { return timer.Merge(max(0, slices.Index(MergeRules, name))) }

// ReadCollectMax reads how many payloads make an array full.
func ReadCollectMax(r *web.Reader) int { return int(r.Ranged("collect_max", 1, timer.MaxCollectMax)) }

// ReadMaxWait reads the longest wait of a debounced timer, or of one that collects.
func ReadMaxWait(r *web.Reader) int64 {
	ms := r.Span("max_wait")
	if ms == 0 && r.Err() == nil {
		r.Reject(r.OutOfRange("max_wait: must be longer than 0s"))
	}
	return ms
}

// LateRules are the values of if_late.
var LateRules = []string{"fire", "reject"}
