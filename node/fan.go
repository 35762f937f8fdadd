package node

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// fan is the goroutines that a request has started. A panic on one of them goes on where they are waited for, which costs that request only; by
// itself it would end the process.
type fan struct {
	work  sync.WaitGroup
	panic atomic.Pointer[any]
}

func (f *fan) Go(do func()) {
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

func (f *fan) Wait() {
	f.work.Wait()
	if v := f.panic.Load(); v != nil {
		panic(*v)
	}
}
