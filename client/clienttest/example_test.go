package clienttest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"carillon/client"
	"carillon/client/clienttest"
)

// A reminder before each renewal, for a year, in less than a second.
func Example() {
	test := func(t *testing.T) {
		ctx, calls := context.Background(), 0
		receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls++ }))
		defer receiver.Close()

		node := clienttest.Start(t, clienttest.Options{At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)})
		_, err := node.Client().Add(ctx, "reminders", client.Spec{
			ID: "member-9", Repeat: &client.Repeat{Cron: "0 9 1 * *", Zone: "Europe/Berlin"},
			Callback: &client.Callback{URL: receiver.URL},
		})
		if err != nil {
			t.Fatal(err)
		}
		moved := node.Advance(365 * 24 * time.Hour)
		fmt.Println(moved.Calls, calls, node.Now().Year())
	}
	_ = test // go test runs it as TestReminders
}
