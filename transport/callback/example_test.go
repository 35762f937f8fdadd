package callback_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"carillon/internal/delivery"
	"carillon/transport/callback"
	"carillon/transport/callback/address"
)

// lane queues for slots; a real one posts the permit to its worker's mailbox.
type lane chan callback.Permit

func (l lane) Granted(p delivery.Permit)            { l <- p.(callback.Permit) }
func (l lane) Refused(time.Duration)                { close(l) }
func (l lane) GrantedSlot(_ int, c delivery.Credit) { c.Cancel() }

func Example() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("received", r.Header.Get("Carillon-Timer"), "attempt", r.Header.Get("Carillon-Attempt"))
		w.WriteHeader(http.StatusNoContent)
	}))
	defer receiver.Close()

	pool := callback.New(callback.Config{Policy: address.Policy{AllowPrivate: true}})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- pool.Run(ctx) }()

	key, _ := address.ParseKey(receiver.URL)
	waiter := make(lane, 1)
	permit, verdict := pool.Acquire(callback.Call{Key: key, Limit: 256}, delivery.Ask{Receiver: waiter, Node: waiter})
	switch verdict.Kind {
	case delivery.ReceiverFull:
		permit = <-waiter
	case delivery.Shut:
		fmt.Println("ask again in", verdict.RetryIn)
		return
	}
	// Here the lease is committed; a lease that fails cancels the permit.
	outcome := make(chan callback.Outcome, 1)
	permit.Start(&callback.Request{
		URL: receiver.URL, Body: []byte(`{"order":77}`), ContentType: "application/json", Timeout: 10 * time.Second,
		Topic: "orders", Timer: "order-77", Attempt: 1, Fence: 1, WebhookID: "msg_1",
	}, func(o callback.Outcome) { outcome <- o })
	o := <-outcome
	fmt.Println("status", o.Status)

	cancel()
	fmt.Println(<-ended)
	// Output:
	// received order-77 attempt 1
	// status 204
	// <nil>
}
