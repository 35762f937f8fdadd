package node

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"carillon/node/member"
	"carillon/node/task"
)

// TestPortForOthersClosesLast: to the other nodes a closed port is the proof that this process has
// ended, and with it its calls. So calls that last longer than a stop waits for them are cut off
// before.
func TestPortForOthersClosesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &process{log: slog.New(slog.DiscardHandler), self: &member.Self{}, tasks: task.NewGoroutines(func() time.Duration { return 0 }), failure: make(chan error, 1)}
		s := newServices(t.Context(), p)
		calling := true
		s.start(s.calls, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second) // the values that the pool gives them
			calling = false
			return nil
		})
		s.start(s.outer, func(ctx context.Context) error {
			<-ctx.Done()
			if calling {
				t.Error("the port closes while a call goes on")
			}
			return nil
		})
		s.api.cancel()
		if err := s.await(); err != nil {
			t.Error(err)
		}
	})
}
