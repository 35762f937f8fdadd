// Command worker is the receiver of the guide on long jobs: it accepts a call with 202, works for a
// while, extending its lease, and reports the result to any node.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"time"

	"carillon/client"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:7790", "address to receive calls at")
	node := flag.String("node", "http://127.0.0.1:7700", "a node of the cluster")
	work := flag.Duration("work", 3*time.Second, "how long a job takes")
	flag.Parse()

	carillon, err := client.New([]string{*node}, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	// A topic with secrets signs its calls: give them here, and only it is believed.
	receiver, err := client.NewReceiver(client.ReceiverOptions{Unsigned: true})
	if err != nil {
		log.Fatal(err)
	}
	accept := func(w http.ResponseWriter, r *http.Request) {
		d, _ := client.FromContext(r.Context())
		w.WriteHeader(http.StatusAccepted) // the lease is ours from now on
		go run(carillon, d, *work)
	}
	server := &http.Server{Addr: *listen, Handler: receiver.Middleware(http.HandlerFunc(accept)), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// run does one job, and holds the lease meanwhile.
func run(carillon *client.Client, d *client.Delivery, work time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	done := time.After(work) // stands for the work itself
	for {
		select {
		case <-time.After(500 * time.Millisecond):
			_, err := carillon.Extend(ctx, 2*time.Second, d.Receipt)
			if errors.Is(err, client.ErrOver) {
				log.Printf("%s: the lease is over, somebody else has it", d.Timer)
				return
			}
		case <-done:
			if _, err := carillon.Ack(ctx, d.Receipt); err != nil {
				log.Printf("%s: %v", d.Timer, err) // it will be called again
			}
			return
		}
	}
}
