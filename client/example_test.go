package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"carillon/client"
)

// node stands for a cluster: it answers every request with a fixed text.
func node(status int, answer string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, answer)
	}))
}

func ExampleClient_Add() {
	server := node(201, `{"topic":"orders","id":"order-77","version":1,"state":"scheduled","due":"2030-01-01T12:30:00.000Z"}`)
	defer server.Close()
	c, err := client.New([]string{server.URL}, client.Options{})
	if err != nil {
		panic(err)
	}
	timer, err := c.Add(context.Background(), "orders", client.Spec{
		ID: "order-77", At: time.Date(2030, 1, 1, 12, 30, 0, 0, time.UTC),
		Payload:  map[string]int{"order": 77},
		Callback: &client.Callback{URL: "https://shop.example/hooks/close"},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(timer.ID, timer.State, timer.Due)
	// Output: order-77 scheduled 2030-01-01 12:30:00 +0000 UTC
}

// A cancel returns its outcome.
func ExampleClient_Cancel() {
	server := node(410, `{"status":410,"code":"over","detail":"the timer has been delivered","outcome":"already_fired"}`)
	defer server.Close()
	c, _ := client.New([]string{server.URL}, client.Options{})
	outcome, err := c.Cancel(context.Background(), "orders", "order-77", client.Cond{})
	fmt.Println(outcome, errors.Is(err, client.ErrOver))
	// Output: already_fired true
}

// Refusals differ by their code.
func ExampleCode() {
	server := node(412, `{"status":412,"code":"version_mismatch","detail":"the timer is not at that version"}`)
	defer server.Close()
	c, _ := client.New([]string{server.URL}, client.Options{})
	_, err := c.Patch(context.Background(), "orders", "order-77", client.Patch{Labels: []string{"vip"}}, client.Cond{Version: 3})
	if errors.Is(err, client.ErrVersionMismatch) {
		fmt.Println("somebody else was faster: read it again")
	}
	// Output: somebody else was faster: read it again
}

func ExampleClient_List() {
	server := node(200, `{"timers":[{"id":"a","due":"2030-01-01T00:00:00.000Z"},{"id":"b","due":"2030-01-02T00:00:00.000Z"}]}`)
	defer server.Close()
	c, _ := client.New([]string{server.URL}, client.Options{})
	for timer, err := range c.List(context.Background(), "orders", client.Filter{Labels: []string{"vip"}}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(timer.ID, timer.Due.Format(time.DateOnly))
	}
	// Output:
	// a 2030-01-01
	// b 2030-01-02
}

// A worker of a pull topic: leases are extended while it works, and reported when it is done.
func ExampleClient_Work() {
	server := node(200, `{"timers":[{"id":"film-1","receipt":"r1","payload":{"film":1}}],"results":[{"receipt":"r1","status":200}]}`)
	defer server.Close()
	c, _ := client.New([]string{server.URL}, client.Options{})
	ctx, stop := context.WithCancel(context.Background()) // as by signal.NotifyContext
	defer stop()
	err := c.Work(ctx, "renders", client.WorkOptions{}, func(_ context.Context, l *client.Lease) error {
		fmt.Printf("%s: %s\n", l.ID, l.Payload)
		stop()
		return nil
	})
	fmt.Println(err)
	// Output:
	// film-1: {"film":1}
	// <nil>
}

func ExampleReceiver() {
	// Give the topic's Secrets instead.
	receiver, err := client.NewReceiver(client.ReceiverOptions{Unsigned: true})
	if err != nil {
		panic(err)
	}
	handler := receiver.Handle(func(_ context.Context, d *client.Delivery) error {
		fmt.Printf("%s/%s, attempt %d: %s\n", d.Topic, d.Timer, d.Attempt, d.Body)
		return nil
	})

	// As a node makes it.
	call := httptest.NewRequest("POST", "/hooks/close", strings.NewReader(`{"order":77}`))
	for name, value := range map[string]string{
		"webhook-id": "0001-1-5eed", "Carillon-Topic": "orders", "Carillon-Timer": "order-77",
		"Carillon-Due": "1893501000000", "Carillon-Attempt": "1", "Carillon-Fence": "7",
	} {
		call.Header.Set(name, value)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, call)
	fmt.Println(answer.Code)
	handler.ServeHTTP(httptest.NewRecorder(), call) // the same lease again is dropped
	// Output:
	// orders/order-77, attempt 1: {"order":77}
	// 204
}
