package client

import (
	"container/list"
	"context"
	"sync"
)

// FenceStore remembers the highest fence of each timer that it has seen. A call of an earlier lease
// that was held up on its way then does nothing. A store that is written in one transaction with
// the handler's effects is complete. Fences, in memory, is good for one process.
type FenceStore interface {
	// Admit reports whether the fence is higher than all that it has admitted of the timer, and if
	// so remembers it.
	Admit(ctx context.Context, topic, timer string, fence uint64) (bool, error)
}

// Fences is a FenceStore in memory. It holds a bounded number of timers: those called last.
type Fences struct {
	mu     sync.Mutex
	max    int
	places map[timerName]*list.Element // of entry
	order  *list.List                  // called last first
}

type timerName struct{ topic, timer string }

type entry struct {
	name  timerName
	fence uint64
}

// NewFences makes one that holds up to size timers; 0 is 100,000, about 20 MB.
func NewFences(size int) *Fences {
	if size <= 0 {
		size = 100_000
	}
	return &Fences{max: size, places: map[timerName]*list.Element{}, order: list.New()}
}

func (f *Fences) Admit(_ context.Context, topic, timer string, fence uint64) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := timerName{topic, timer}
	if at, known := f.places[name]; known {
		e := at.Value.(*entry)
		if fence <= e.fence {
			return false, nil
		}
		e.fence = fence
		f.order.MoveToFront(at)
		return true, nil
	}
	if f.order.Len() >= f.max {
		oldest := f.order.Back()
		delete(f.places, oldest.Value.(*entry).name)
		f.order.Remove(oldest)
	}
	f.places[name] = f.order.PushFront(&entry{name, fence})
	return true, nil
}
