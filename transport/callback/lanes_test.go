package callback

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carillon/internal/delivery"
)

// TestLanesEndToEnd: lanes that compete for few slots at a healthy, a failing and
// a closing receiver. Every started call ends once, the healthy receiver's all
// succeed, and nothing is left at the end.
func TestLanesEndToEnd(t *testing.T) {
	const lanes, rounds = 16, 40
	good, bad := receive(t, always(answer200)), receive(t, always(answerOf(500)))
	closing := receive(t, func(_ net.Conn, in *bufio.Reader) { _, _, _ = readRequest(in) })
	p := startPool(t, Config{Policy: local, MaxCalls: 9})
	breaker := Breaker{Failures: 3, Open: 2 * time.Millisecond}
	var started, ended, succeeded, opened atomic.Int32
	var wait sync.WaitGroup
	for lane := range lanes {
		wait.Go(func() {
			w := newWaiter()
			outs := make(chan Outcome, 1)
			url := []string{good.url, good.url, bad.url, closing.url}[lane%4]
			for done := 0; done < rounds; {
				permit, v := acquire(p, Call{Key: keyOf(t, url), Limit: 4, Breaker: breaker}, w)
				var retryAt time.Time
				switch v.Kind {
				case delivery.Shut:
					retryAt = time.Now().Add(v.RetryIn)
				case delivery.ReceiverFull:
					select {
					case permit = <-w.granted:
					case retryAt = <-w.refused:
					}
				case delivery.NodeFull:
					t.Error("the node is full")
					return
				}
				if !retryAt.IsZero() { // as told: ask again then
					opened.Add(1)
					<-time.After(time.Until(retryAt))
					continue
				}
				started.Add(1)
				permit.Start(post(url), func(o Outcome) { ended.Add(1); outs <- o })
				out := <-outs
				if out.Err == "" {
					succeeded.Add(1)
				}
				if (out.Err == "") != (url == good.url) {
					t.Errorf("%s: %+v", url, out)
				}
				done++
			}
		})
	}
	wait.Wait()
	if started.Load() != lanes*rounds || ended.Load() != lanes*rounds || succeeded.Load() != lanes/2*rounds {
		t.Errorf("started %d, ended %d, succeeded %d", started.Load(), ended.Load(), succeeded.Load())
	}
	if opened.Load() == 0 {
		t.Error("no breaker opened")
	}
}
