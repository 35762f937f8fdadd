package api

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// fanOut bounds the calls into the engine that one request makes at a time.
const fanOut = 16

// each calls f for 0 to n-1, up to fanOut at a time, and waits for all.
func each(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var all fan
	workers := min(n, fanOut)
	for w := range workers {
		all.run(func() {
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	all.wait()
}

// fan is the goroutines that a request has started. A panic on one of them goes on where they are waited for, which costs that request only; by
// itself it would end the process.
type fan struct {
	work  sync.WaitGroup
	panic atomic.Pointer[any]
}

func (f *fan) run(do func()) {
	f.work.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				text := any(fmt.Sprintf("%v\n%s", v, debug.Stack()))
				f.panic.CompareAndSwap(nil, &text)
			}
		}()
		do()
	})
}

func (f *fan) wait() {
	f.work.Wait()
	if v := f.panic.Load(); v != nil {
		panic(*v)
	}
}
