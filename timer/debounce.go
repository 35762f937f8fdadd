package timer

// Debounced is the due time in Unix ms of an add whose scope began with an add at firstMs.
func Debounced(rule Merge, dueMs, firstMs, maxWaitMs int64) int64 {
	if rule != MergeDebounce && rule != MergeCollect || maxWaitMs == 0 {
		return dueMs
	}
	return min(dueMs, ClampMs(firstMs+ClampMs(maxWaitMs)))
}
