package node

import (
	"context"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/timer"
	"carillon/transport/callback"
	"carillon/transport/callback/address"
)

// alone is a waiter of a call that has its slot at once.
type alone struct{}

func (alone) Granted(delivery.Permit)              {}
func (alone) Refused(time.Duration)                {}
func (alone) GrantedSlot(_ int, c delivery.Credit) { c.Cancel() }

// TestRefusedAddressIsKnownByItsError: a refusal of the policy is known as one from what a timer
// keeps of its last attempt, and nothing else is taken for one.
func TestRefusedAddressIsKnownByItsError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	pool := callback.New(callback.Config{})
	ended := make(chan error, 1)
	go func() { ended <- pool.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for _, url := range []string{"http://127.0.0.1:1/", "http://169.254.169.254/", "http://localhost/", "http://a.localhost:8080/"} {
		key, err := address.ParseKey(url)
		if err != nil {
			t.Fatal(err)
		}
		permit, result := pool.Acquire(callback.Call{Key: key}, delivery.Ask{Receiver: alone{}, Node: alone{}})
		if result.Kind != delivery.Granted {
			t.Fatalf("%s: %+v", url, result)
		}
		outs := make(chan callback.Outcome, 1)
		permit.Start(&callback.Request{URL: url}, func(out callback.Outcome) { outs <- out })
		if out := <-outs; !out.Refused || !timer.RefusedAddress(out.Err) {
			t.Errorf("%s: %+v is not known as a refusal", url, out)
		}
	}
	for _, text := range []string{"", "connection refused", "status 403: refused: no", "timeout"} {
		if timer.RefusedAddress(text) {
			t.Errorf("%q is taken for a refusal", text)
		}
	}
}
