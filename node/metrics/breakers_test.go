package metrics

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/transport/callback"
	"carillon/transport/callback/address"
)

// TestBreakerThatClosesMeanwhile: a breaker that closes while the states are read is shown once.
// The same series twice would fail the whole answer.
func TestBreakerThatClosesMeanwhile(t *testing.T) {
	var status atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }))
	defer receiver.Close()
	pool := callback.New(callback.Config{Policy: address.Policy{AllowPrivate: true}})
	key, err := address.ParseKey(receiver.URL)
	if err != nil {
		t.Fatal(err)
	}
	call := func(answer int64) {
		status.Store(answer)
		for {
			permit, v := pool.Acquire(callback.Call{Key: key, Breaker: callback.Breaker{Failures: 1, Open: time.Millisecond}}, delivery.Ask{})
			if v.Kind == delivery.Granted {
				done := make(chan struct{})
				permit.Start(&callback.Request{URL: receiver.URL}, func(callback.Outcome) { close(done) })
				<-done
				return
			}
			<-time.After(v.RetryIn)
		}
	}
	call(500)
	g := gauges{Sources{Pool: pool}}
	shown := 0
	g.breakers(func(string, delivery.BreakerState) {
		if shown++; shown == 1 {
			call(200)
		}
	})
	if shown != 1 {
		t.Errorf("the breaker is shown %d times", shown)
	}
}
