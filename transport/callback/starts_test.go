package callback

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/delivery"
)

// TestCallsBeginInTurn: of 500 calls to receivers that take long to connect, as many begin at once
// as the processors can serve, and more when those only wait. A call of another topic begins next,
// whatever waits.
func TestCallsBeginInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		begun := map[string]time.Duration{}
		start := time.Now()
		p := startPool(t, Config{Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
			mu.Lock()
			begun[address] = time.Since(start)
			mu.Unlock()
			<-time.After(time.Second)
			return nil, errNoRoute
		}})
		begin := func(n int, topic uint64) {
			permit, v := acquire(p, Call{Key: destinationKey(n), Number: topic}, newWaiter())
			if v.Kind != delivery.Granted {
				t.Fatalf("%+v", v)
			}
			permit.Start(post(fmt.Sprintf("http://d%d.example/", n)), func(Outcome) {})
		}
		for n := range 500 {
			begin(n, 1)
		}
		begin(500, 2)
		synctest.Wait()
		at := func(want int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if len(begun) != want {
				t.Fatalf("%d calls have begun after %v, want %d", len(begun), time.Since(start), want)
			}
		}
		most := p.starts.most
		at(most)
		time.Sleep(youngFor + youngFor/2) // fake time
		synctest.Wait()
		at(2 * most)
		mu.Lock()
		if when, ok := begun["d500.example:80"]; !ok || when > 2*youngFor {
			t.Errorf("the other topic's call began after %v, %v", when, ok)
		}
		mu.Unlock()
		time.Sleep(501 / time.Duration(most) * 2 * youngFor)
		synctest.Wait()
		at(501)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if p.InFlight() != 0 || p.starts.young.Len()+p.starts.ring.Len()+len(p.starts.lanes) != 0 {
			t.Errorf("left over: %d calls, %d young, %d topics", p.InFlight(), p.starts.young.Len(), p.starts.ring.Len())
		}
	})
}
