package ring

// LongestHistory is the longest time for which any topic keeps its ended timers, in ms; false when
// there is no topic.
func (t *Topics) LongestHistory() (ms int64, any bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, topic := range t.byID {
		ms, any = max(ms, topic.Policy.HistoryMs), true
	}
	return ms, any
}
