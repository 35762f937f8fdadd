package callback

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/delivery"
)

// TestCallsBeginInTurn: of 500 calls to receivers that take long to connect, as many begin at once
// as the processors can serve, and more when those only wait. The only call of another topic begins
// at once, whatever waits.
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
		at(most + 1)
		mu.Lock()
		if when, ok := begun["d500.example:80"]; !ok || when > 0 {
			t.Errorf("the other topic's call began after %v, %v", when, ok)
		}
		mu.Unlock()
		time.Sleep(youngTime + youngTime/2) // fake time
		synctest.Wait()
		at(2*most + 1)
		time.Sleep(501 / time.Duration(most) * 2 * youngTime)
		synctest.Wait()
		at(501)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if p.InFlight() != 0 || p.starts.young.Len()+p.starts.ring.Len()+len(p.starts.lanes)+len(p.starts.of) != 0 {
			t.Errorf("left over: %d calls, %d young, %d topics", p.InFlight(), p.starts.young.Len(), p.starts.ring.Len())
		}
	})
}

// TestFirstCallsAreFew: of 200 calls to as many receivers that answer in half of a call's youth, no
// more run at once than the processors can serve, but of those after them all.
func TestFirstCallsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		var mu sync.Mutex
		running, peak, ended := 0, 0, 0
		m := &memory{serve: func(c net.Conn, in *bufio.Reader) {
			for {
				req, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				mu.Lock()
				running++
				peak = max(peak, running)
				mu.Unlock()
				<-time.After(youngTime / 2)
				mu.Lock()
				running--
				mu.Unlock()
				_, _ = io.WriteString(c, answer200)
			}
		}}
		p := startPool(t, Config{Dial: m.dial})
		callAll := func() {
			for i := range n {
				permit, v := acquire(p, Call{Key: destinationKey(i), Number: 1}, newWaiter())
				if v.Kind != delivery.Granted {
					t.Fatalf("%+v", v)
				}
				permit.Start(post(fmt.Sprintf("http://d%d.example/", i)), func(out Outcome) {
					mu.Lock()
					defer mu.Unlock()
					if ended++; out.Status != 200 {
						t.Errorf("%+v", out)
					}
				})
			}
			<-time.After(time.Second)
			synctest.Wait()
		}
		callAll()
		if ended != n || peak > p.starts.most {
			t.Errorf("%d of %d calls were answered, and %d ran at once, want at most %d", ended, n, peak, p.starts.most)
		}
		peak = 0
		callAll()
		if ended != 2*n || peak < n/2 {
			t.Errorf("%d of %d calls were answered, and %d ran at once after the first", ended, 2*n, peak)
		}
	})
}
