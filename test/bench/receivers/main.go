// Command receivers is the yardstick of timers to many receivers: a bare fasthttp client that POSTs
// once to each of N addresses, 127.16.0.0 and up, with so many calls at once. It prints how many
// seconds that took.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: receivers PORT N CALLS-AT-ONCE")
	}
	var numbers [3]int
	for i, text := range os.Args[1:] {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			log.Fatalf("%q is not a positive number", text)
		}
		numbers[i] = n
	}
	port, receivers, atOnce := numbers[0], numbers[1], numbers[2]
	body := bytes.Repeat([]byte("x"), 200)
	var next atomic.Int64
	var failed atomic.Int64
	var callers sync.WaitGroup
	begun := time.Now()
	for range atOnce {
		callers.Go(func() {
			request, answer := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			for i := next.Add(1) - 1; i < int64(receivers); i = next.Add(1) - 1 {
				address := fmt.Sprintf("127.%d.%d.%d:%d", 16+i>>16, i>>8&255, i&255, port)
				request.Reset()
				request.Header.SetMethod("POST")
				request.SetRequestURI("http://" + address + "/")
				request.SetBodyRaw(body)
				request.SetConnectionClose() // the address is called once
				client := fasthttp.HostClient{Addr: address}
				if err := client.Do(request, answer); err != nil || answer.StatusCode() != 200 {
					failed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if n := failed.Load(); n > 0 {
		log.Fatalf("%d calls failed", n)
	}
	fmt.Printf("%.3f\n", time.Since(begun).Seconds())
}
