// Command consumer is the worker of the guide on pull topics. It handles a topic's timers, a few at
// a time, until it is interrupted, and finishes those that it has begun.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"carillon/client"
)

func main() {
	node := flag.String("node", "http://127.0.0.1:7700", "a node of the cluster")
	topic := flag.String("topic", "renders", "topic to work off")
	jobs := flag.Int64("jobs", 0, "end after so many; 0: when interrupted")
	flag.Parse()

	carillon, err := client.New([]string{*node}, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var done atomic.Int64
	options := client.WorkOptions{Concurrency: 4, OnError: func(err error) { log.Print(err) }}
	err = carillon.Work(ctx, *topic, options, func(_ context.Context, l *client.Lease) error {
		fmt.Printf("%s, attempt %d: %s\n", l.ID, l.Attempt, l.Payload) // stands for the work
		if done.Add(1) == *jobs {
			stop()
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}
