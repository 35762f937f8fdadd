package sink_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"carillon/loadtest/sink"
)

// A sink in a test of one's own: run it on a free port, let callbacks come, look at its counts.
func ExampleSink() {
	s, err := sink.New(sink.Config{Listen: "127.0.0.1:0", Status: 204, Out: io.Discard})
	if err != nil {
		fmt.Println(err)
		return
	}
	address, err := s.Listen()
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()

	for _, fence := range []string{"7", "6"} {
		request, _ := http.NewRequest("POST", "http://"+address+"/hooks/close", strings.NewReader(`{"order":77}`))
		request.Header.Set("Carillon-Topic", "orders")
		request.Header.Set("Carillon-Timer", "close-77")
		request.Header.Set("Carillon-Fence", fence)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			fmt.Println(err)
			return
		}
		response.Body.Close()
		fmt.Println(response.StatusCode)
	}
	fmt.Println(s.Counts())
	cancel()
	<-done
	// Output:
	// 204
	// 204
	// received 2  failed 0  retries 0  early 0  repeated 0  stale fence 1  bad signature 0
}
