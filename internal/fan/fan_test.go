package fan

import (
	"strings"
	"testing"
)

// A panic of one goroutine is repeated on the waiting one, after all have ended.
func TestPanicReachesWhoWaits(t *testing.T) {
	var all Group
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
		if text, _ := recover().(string); !strings.Contains(text, "detail") || !done[0] || !done[2] {
			t.Errorf("recovered %.80q, done %v", text, done)
		}
	}()
	all.Wait()
	t.Error("the panic is gone")
}
