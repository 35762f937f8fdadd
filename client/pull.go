package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Lease is a timer that was pulled: this consumer has it until LeaseUntil.
type Lease struct {
	Timer
	Receipt    string    `json:"receipt"` // for Ack, Nack and Extend, at any node
	Fence      uint64    `json:"fence"`   // grows with every lease of the id
	Attempt    int       `json:"attempt"`
	LeaseUntil time.Time `json:"lease_until"`
}

// PullOptions are how much to take and how long to wait for it.
type PullOptions struct {
	Max   int           // 1–1000; 0 is 1
	Wait  time.Duration // up to a minute; 0: answer at once
	Lease time.Duration // 0: the topic's
}

type wirePull struct {
	Max   int          `json:"max,omitempty"`
	Wait  wireDuration `json:"wait,omitzero"`
	Lease wireDuration `json:"lease,omitzero"`
}

// Pull takes timers of a pull topic that are ready. None, after the wait, is no error. It is not
// repeated: timers that a lost answer had leased come back when the lease ends. Work does it all.
func (c *Client) Pull(ctx context.Context, topic string, o PullOptions) ([]Lease, error) {
	var answer struct {
		Timers []Lease `json:"timers"`
	}
	r := Request{Method: http.MethodPost, Path: Path("topics", topic, "pull")}
	err := c.call(ctx, r, wirePull{o.Max, wireDuration(o.Wait), wireDuration(o.Lease)}, &answer)
	return answer.Timers, err
}

// ReceiptResult is the outcome of one receipt.
type ReceiptResult struct {
	Receipt string `json:"receipt"`
	Status  int    `json:"status"` // 200, or 410: the lease is over
	Code    Code   `json:"code"`
}

// Err is nil when the receipt was taken.
func (r *ReceiptResult) Err() error {
	if r.Status/100 == 2 {
		return nil
	}
	return &Problem{Status: r.Status, Code: r.Code, Detail: "the lease is over"}
}

type wireReceipts struct {
	Receipts []string      `json:"receipts"`
	Delay    *wireDuration `json:"delay,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Lease    wireDuration  `json:"lease,omitzero"`
}

// Ack reports the timers as done. Doing it twice is good. Where the lease of a receipt is over,
// or it is none, the error is ErrOver; the results have which, and the others were taken.
func (c *Client) Ack(ctx context.Context, receipts ...string) ([]ReceiptResult, error) {
	return c.report(ctx, "ack", wireReceipts{Receipts: receipts})
}

// Backoff is the delay of a Nack that leaves it to the topic's policy.
const Backoff time.Duration = -1

// Nack reports the timers as failed: they come again after the delay, or the Backoff. The reason
// shows in LastError. Its error is as Ack's, but where the answer to a Nack was lost, its repetition
// finds the lease over.
func (c *Client) Nack(ctx context.Context, delay time.Duration, reason string, receipts ...string) ([]ReceiptResult, error) {
	body := wireReceipts{Receipts: receipts, Reason: reason}
	if delay >= 0 {
		body.Delay = (*wireDuration)(&delay)
	}
	return c.report(ctx, "nack", body)
}

// Extend makes the leases end that long from now. Its error is as Ack's.
func (c *Client) Extend(ctx context.Context, lease time.Duration, receipts ...string) ([]ReceiptResult, error) {
	return c.report(ctx, "extend", wireReceipts{Receipts: receipts, Lease: wireDuration(lease)})
}

// report is repeated: a receipt is of one lease, and does nothing to a later one.
func (c *Client) report(ctx context.Context, what string, body wireReceipts) ([]ReceiptResult, error) {
	var answer struct {
		Results []ReceiptResult `json:"results"`
	}
	if body.Receipts == nil {
		body.Receipts = []string{}
	}
	if err := c.call(ctx, Request{Method: http.MethodPost, Path: Path(what), Repeatable: true}, body, &answer); err != nil {
		return nil, err
	}
	over := 0
	for i := range answer.Results {
		if answer.Results[i].Err() != nil {
			over++
		}
	}
	if over > 0 {
		return answer.Results, &Problem{Status: http.StatusGone, Code: ErrOver, Detail: fmt.Sprintf("%d of %d leases are over", over, len(answer.Results))}
	}
	return answer.Results, nil
}
