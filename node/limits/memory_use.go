package limits

import (
	"log/slog"
	runtimemetrics "runtime/metrics"
	"sync"
)

// MemoryUse is the process's need of memory: the objects that the collector found to be live, and
// all that is no heap. Free memory, and garbage, goes back when it is wanted, so it does not count.
type MemoryUse struct {
	mark int64 // adds are refused above it; 0: there is none
	log  *slog.Logger

	mu      sync.Mutex
	samples []runtimemetrics.Sample
	over    bool
}

func NewMemoryUse(mark int64, log *slog.Logger) *MemoryUse {
	m := &MemoryUse{mark: mark, log: log}
	for _, name := range []string{
		"/memory/classes/total:bytes", "/memory/classes/heap/released:bytes", "/memory/classes/heap/free:bytes", "/memory/classes/heap/objects:bytes",
		"/gc/heap/live:bytes",
	} {
		m.samples = append(m.samples, runtimemetrics.Sample{Name: name})
	}
	return m
}

// Now reads the need, which takes less than a microsecond, and logs when it makes adds be refused,
// and when no longer.
func (m *MemoryUse) Now() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	runtimemetrics.Read(m.samples)
	v := func(i int) int64 { return int64(m.samples[i].Value.Uint64()) }
	total, released, free, objects, live := v(0), v(1), v(2), v(3), v(4)
	needed := total - released - free - max(0, objects-live)
	if over := m.mark > 0 && needed > m.mark; over != m.over {
		if m.over = over; over {
			m.log.Warn("adds are refused: memory use has reached its mark", "needed", needed, "mark", m.mark)
		} else {
			m.log.Info("adds are accepted again: memory use is below its mark", "needed", needed, "mark", m.mark)
		}
	}
	return needed
}
