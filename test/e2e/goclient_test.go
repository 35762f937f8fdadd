package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	goclient "carillon/client" // the tests have their own
)

// TestGoClient makes the Go client's calls against a real node and receives its signed callbacks.
func TestGoClient(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	node := serve(t, t.TempDir(), "--shards", "4")
	c, err := goclient.New([]string{node.url}, goclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	cluster, err := c.Cluster(ctx)
	must(err)
	if !cluster.Healthy || len(cluster.Nodes) != 1 || cluster.Nodes[0].State != goclient.NodeAlive || cluster.Shards[0].State != goclient.ShardOK {
		t.Errorf("%+v", cluster)
	}
	if _, err := c.DrainNode(ctx, "nobody"); !errors.Is(err, goclient.ErrNotFound) {
		t.Error(err)
	}

	receiver, err := goclient.NewReceiver(goclient.ReceiverOptions{Secrets: []string{secret}})
	must(err)
	arrived := make(chan goclient.Delivery, 8)
	server := httptest.NewServer(receiver.Handle(func(_ context.Context, d *goclient.Delivery) error {
		arrived <- *d
		if d.Timer == "fails" {
			return errors.New("not today")
		}
		return nil
	}))
	defer server.Close()
	topic, err := c.PutTopic(ctx, "orders", goclient.Policy{
		Callback: &goclient.Callback{URL: server.URL, Timeout: 5 * time.Second}, Secrets: []string{secret},
		Retry: &goclient.Retry{MaxAttempts: 1}, History: time.Hour,
	})
	must(err)
	if topic.Policy.Callback.URL != server.URL || topic.Policy.History != time.Hour || len(topic.Policy.Secrets) != 1 || topic.Policy.Secrets[0] == secret {
		t.Errorf("%+v", topic)
	}
	_, err = c.PutTopic(ctx, "orders", topic.Policy) // a policy can be put back as shown
	must(err)

	due := time.Now().Add(50 * time.Millisecond).Truncate(time.Millisecond)
	timer, err := c.Add(ctx, "orders", goclient.Spec{ID: "{order-77}close", At: due, Payload: map[string]any{"text": "<&>"}})
	must(err)
	again, err := c.Add(ctx, "orders", goclient.Spec{ID: "{order-77}close", At: due, Payload: map[string]any{"text": "<&>"}})
	must(err)
	if again.UID != timer.UID {
		t.Errorf("repeating the add made %s beside %s", again.UID, timer.UID)
	}
	d := <-arrived
	if d.Topic != "orders" || d.Timer != "{order-77}close" || d.Attempt != 1 || !d.Due.Equal(due) || string(d.Body) != `{"text":"<&>"}` || d.Fence == 0 {
		t.Errorf("%+v %s", d, d.Body)
	}
	if outcome, err := c.Cancel(ctx, "orders", "nobody", goclient.Cond{}); !errors.Is(err, goclient.ErrUnknownTimer) || outcome != "" {
		t.Errorf("%q, %v", outcome, err)
	}

	goClientChanges(ctx, t, c, must)
	goClientConsumes(ctx, t, c, must)

	_, err = c.Put(ctx, "orders", "fails", goclient.Spec{Delay: goclient.Now}, goclient.Cond{New: true})
	must(err)
	<-arrived
	dead := func() (n int) {
		for _, err := range c.DeadLetters(ctx, "orders", goclient.DeadFilter{Reason: goclient.MaxAttempts}) {
			must(err)
			n++
		}
		return n
	}
	for dead() == 0 && ctx.Err() == nil {
		<-time.After(5 * time.Millisecond)
	}
	counts, err := c.RedriveDead(ctx, "orders", goclient.DeadSelector{Filter: &goclient.DeadFilter{Reason: goclient.MaxAttempts}}, goclient.Redrive{Delay: time.Hour})
	if must(err); counts.Matched != 1 || counts.Changed != 1 || counts.Skipped != 0 {
		t.Errorf("%+v", counts)
	}
	if _, err := c.DeleteTopic(ctx, "orders", false); !errors.Is(err, goclient.ErrNotEmpty) {
		t.Error(err)
	}
	if n, err := c.DeleteTopic(ctx, "orders", true); n < 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// goClientConsumes consumes a pull topic: each timer is handled once, except the one that fails
// first.
func goClientConsumes(ctx context.Context, t *testing.T, c *goclient.Client, must func(error)) {
	_, err := c.PutTopic(ctx, "jobs", goclient.Policy{Delivery: goclient.DeliverByPull})
	must(err)
	var ops []goclient.Op
	for i := range 30 {
		ops = append(ops, goclient.AddOp(goclient.Spec{ID: fmt.Sprintf("j%02d", i), Delay: goclient.Now}))
	}
	_, err = c.Batch(ctx, "jobs", ops, true)
	must(err)
	handled := make(chan goclient.Lease, len(ops)+1)
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		o := goclient.WorkOptions{Concurrency: 8, Lease: time.Second, OnError: func(err error) { t.Error(err) }}
		ended <- c.Work(working, "jobs", o, func(ctx context.Context, l *goclient.Lease) error {
			handled <- *l
			switch {
			case l.ID == "j03" && l.Attempt == 1:
				return goclient.RetryAfter(10*time.Millisecond, errors.New("not yet"))
			case l.ID == "j04": // longer than its lease
				<-time.After(1500 * time.Millisecond)
			}
			return ctx.Err()
		})
	}()
	times := map[string]int{}
	for range len(ops) + 1 {
		select {
		case l := <-handled:
			times[l.ID]++
		case <-ctx.Done():
			t.Fatalf("handled %v", times)
		}
	}
	stop()
	must(<-ended)
	topic, err := c.Topic(ctx, "jobs")
	must(err)
	if len(times) != len(ops) || times["j03"] != 2 || len(handled) != 0 || topic.Counts.Done != int64(len(ops)) {
		t.Errorf("handled %v; %+v", times, topic.Counts)
	}
}

func goClientChanges(ctx context.Context, t *testing.T, c *goclient.Client, must func(error)) {
	var ops []goclient.Op
	for i := range 20 {
		ops = append(ops, goclient.AddOp(goclient.Spec{ID: fmt.Sprintf("b%02d", i), Delay: time.Hour, Labels: []string{fmt.Sprint("l", i%2)}}))
	}
	results, err := c.Batch(ctx, "orders", append(ops, goclient.AddOp(goclient.Spec{ID: "a/b", Delay: goclient.Now})), false)
	must(err)
	if results[3].Err() != nil || results[3].Timer.Labels[0] != "l1" || !errors.Is(results[20].Err(), goclient.ErrBadName) {
		t.Errorf("%+v, %v", results[3], results[20].Err())
	}
	first := results[0].Timer
	moved, err := c.Patch(ctx, "orders", "b00", goclient.Patch{At: first.Due.Add(time.Minute)}, goclient.Cond{Version: first.Version})
	must(err)
	if _, err := c.Patch(ctx, "orders", "b00", goclient.Patch{Labels: []string{"x"}}, goclient.Cond{Version: first.Version}); !errors.Is(err, goclient.ErrVersionMismatch) {
		t.Error(err)
	}
	counts, err := c.Reschedule(ctx, "orders", goclient.Selector{Filter: goclient.Filter{Labels: []string{"l0"}}}, goclient.RescheduleTo{Shift: time.Hour})
	must(err)
	if got, err := c.Get(ctx, "orders", "b00"); err != nil || !got.Due.Equal(moved.Due.Add(time.Hour)) || counts.Changed != 10 {
		t.Errorf("%+v, %v, %+v", got, err, counts)
	}
	counts, err = c.CancelAll(ctx, "orders", goclient.Selector{Filter: goclient.Filter{IDPrefix: "b1"}})
	if must(err); counts.Changed != 10 {
		t.Errorf("%+v", counts)
	}
	var left []string
	for _, filter := range []goclient.Filter{{IDPrefix: "b01"}, {ID: "b01"}, {ID: "b0"}} {
		for timer, err := range c.List(ctx, "", filter) {
			must(err)
			left = append(left, timer.Topic+"/"+timer.ID)
		}
	}
	if fmt.Sprint(left) != "[orders/b01 orders/b01]" {
		t.Errorf("of all topics: %q", left)
	}
	for _, err := range c.List(ctx, "orders", goclient.Filter{ID: "b01"}) {
		if !badRequest(err) {
			t.Errorf("a list of one topic by an id: %v", err)
		}
	}
	if _, err := c.CancelAll(ctx, "orders", goclient.Selector{Filter: goclient.Filter{ID: "b01", IDPrefix: "b"}}); !badRequest(err) {
		t.Errorf("a cancel by an id: %v", err)
	}
	left = nil
	for timer, err := range c.List(ctx, "orders", goclient.Filter{States: []goclient.State{goclient.Scheduled}}) {
		must(err)
		left = append(left, timer.ID)
	}
	if len(left) != 10 || !strings.HasPrefix(left[0], "b0") {
		t.Error(left)
	}
	if _, err := c.Pause(ctx, "orders"); err != nil {
		t.Error(err)
	}
	if topic, err := c.Resume(ctx, "orders"); err != nil || topic.Paused || topic.Counts.Scheduled != 10 {
		t.Errorf("%+v, %v", topic, err)
	}
	if outcome, err := c.Cancel(ctx, "orders", "b00", goclient.Cond{}); outcome != goclient.Prevented || err != nil {
		t.Errorf("%s, %v", outcome, err)
	}
}

func badRequest(err error) bool {
	p, is := errors.AsType[*goclient.Problem](err)
	return is && p.Status == http.StatusBadRequest
}
