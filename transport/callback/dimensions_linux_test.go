package callback

import (
	"fmt"
	"testing"
	"time"

	"carillon/internal/delivery"
	"carillon/test/testkit/growth"
	"carillon/transport/callback/address"
)

// crowd is a pool that is full, with waiters. It is not run: no call is made.
type crowd struct {
	*Pool
	t    testing.TB
	held []Permit
}

func newCrowd(t testing.TB, n int) *crowd {
	p := New(Config{MaxCalls: crowdCalls, MaxDestinations: 2*n + 4*crowdCalls})
	return &crowd{Pool: p, t: t}
}

const crowdCalls = 128

// ask asks for a call at a receiver of its own.
func (c *crowd) ask(tenant string, topic uint64, receiver int) {
	c.t.Helper()
	key, err := address.ParseKey(fmt.Sprintf("http://receiver-%d.example/", receiver))
	if err != nil {
		c.t.Fatal(err)
	}
	w := &crowdWaiter{crowd: c, call: Call{Key: key, Tenant: tenant, Number: topic}}
	switch permit, result := c.Acquire(w.call, delivery.Ask{Receiver: w, Node: w}); result.Kind {
	case delivery.Granted:
		c.held = append(c.held, permit)
	case delivery.ReceiverFull, delivery.NodeFull:
	default:
		c.t.Fatalf("%+v", result)
	}
}

// crowdWaiter is one that is not equal to any other.
type crowdWaiter struct {
	*crowd
	call Call
}

func (w *crowdWaiter) Granted(p delivery.Permit) { w.held = append(w.held, p.(Permit)) }
func (w *crowdWaiter) Refused(time.Duration)     {}
func (w *crowdWaiter) GrantedSlot(_ int, c delivery.Credit) {
	permit, result := w.Acquire(w.call, delivery.Ask{Receiver: w, Node: w, Credit: c})
	if result.Kind != delivery.Granted {
		w.t.Errorf("a credit was refused: %+v", result)
		return
	}
	w.held = append(w.held, permit)
}

func (c *crowd) giveBack() {
	permit := c.held[0]
	c.held = c.held[1:]
	permit.Cancel()
}

// handOut gives slots back one by one, and returns the longest hand-out.
func (c *crowd) handOut(times int) time.Duration {
	return growth.LongestStep(c.t, func() bool {
		c.giveBack()
		times--
		return times > 0 && len(c.held) > 0
	}, func() {})
}

// TestLongestHandOut: to give a slot to the next waiter costs about the same, however many wait, at
// however many receivers, for however many tenants.
func TestLongestHandOut(t *testing.T) {
	growth.Check(t,
		growth.Dimension{Name: "waiters for a slot", N: 8_000, Longest: func(t testing.TB, n int) time.Duration {
			c := newCrowd(t, n)
			for i := range n { // one has all that it may have
				c.ask("one", 1, i)
			}
			for i := range crowdCalls { // and another has and wants the rest
				c.ask("other", 2, n+i)
			}
			return c.handOut(crowdCalls / 2)
		}},
		growth.Dimension{Name: "tenants", N: 500, Longest: func(t testing.TB, n int) time.Duration {
			c := newCrowd(t, n)
			for i := range n {
				c.ask(fmt.Sprint("tenant-", i), uint64(i), i)
			}
			return c.handOut(crowdCalls / 2)
		}},
	)
}
