package task

import (
	"strings"
	"testing"
	"time"
)

// A panic in a task that a request has started goes on in the request, where the API makes a 500 of
// it.
func TestPanicInAGroupReachesItsRequest(t *testing.T) {
	all := NewGroup(NewGoroutines(func() time.Duration { return 0 }))
	done := make([]bool, 3)
	for i := range done {
		all.Go(func() {
			if i == 1 {
				panic("detail")
			}
			done[i] = true
		})
	}
	defer func() {
		if v := recover(); v == nil || !strings.Contains(v.(string), "detail") || !done[0] || !done[2] {
			t.Errorf("recovered %.80v, done %v", v, done)
		}
	}()
	all.Wait()
	t.Error("the panic is gone")
}
