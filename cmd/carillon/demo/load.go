package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"carillon/client"
)

const (
	addsPerSecond  = 200
	workers        = 128 // requests at once; when all wait, adds are left out
	requestTimeout = 3 * time.Second
	// An add is repeated until it is answered or so much has passed.
	addPatience = 15 * time.Second
	retryPause  = 25 * time.Millisecond
	// Of the topic's receiver: a new leader waits out its predecessor's calls.
	callTimeout = time.Second
	topic       = "demo"
)

// Delays of timers, in milliseconds: soon, so that they come due while a node is down.
const (
	minDelayMs = 100
	maxDelayMs = 3000
)

// load adds timers at a steady rate through all nodes; some are changed, some are cancelled.
type load struct {
	cluster *cluster
	book    *book
	turn    atomic.Uint32
	random  *rand.Rand // the scheduler's alone
}

func newLoad(c *cluster, b *book) *load {
	return &load{cluster: c, book: b, random: rand.New(rand.NewPCG(rand.Uint64(), 1))}
}

// prepare makes the topic.
func (l *load) prepare(ctx context.Context, callback string) error {
	policy := client.Policy{Callback: &client.Callback{URL: callback, Timeout: callTimeout}}
	return await(ctx, "nobody takes the topic", func() (bool, error) {
		err := l.send(ctx, func(c *client.Client) error {
			_, err := c.PutTopic(ctx, topic, policy)
			return err
		})
		if fateOf(err) == no {
			return false, fmt.Errorf("demo: make the topic: %w", err)
		}
		return err == nil, nil
	})
}

// job is one timer's story, drawn when its turn comes.
type job struct {
	delayMs, newDelayMs int64
	change, cancel      bool
}

// run adds until the context ends, and returns when every request has ended.
func (l *load) run(ctx context.Context) {
	jobs := make(chan job)
	var busy sync.WaitGroup
	for range workers {
		busy.Go(func() {
			for j := range jobs {
				l.do(context.WithoutCancel(ctx), j)
			}
		})
	}
	defer busy.Wait()
	defer close(jobs)
	tick := time.NewTicker(time.Second / addsPerSecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		select {
		case jobs <- l.draw():
		default:
		}
	}
}

func (l *load) draw() job {
	r := l.random
	delay := func() int64 { return minDelayMs + r.Int64N(maxDelayMs-minDelayMs) }
	return job{delayMs: delay(), newDelayMs: delay(), change: r.IntN(10) == 0, cancel: r.IntN(10) == 0}
}

func (l *load) do(ctx context.Context, j job) {
	dueMs := time.Now().UnixMilli() + j.delayMs
	number := l.book.enter(dueMs)
	if !l.add(ctx, number, dueMs) {
		return
	}
	id := timerID(number)
	if j.change {
		dueMs = time.Now().UnixMilli() + j.newDelayMs
		l.book.changing(number, dueMs)
		patch := client.Patch{At: time.UnixMilli(dueMs), Payload: json.RawMessage(payloadOf(number, 2))}
		l.book.change(number, fateOf(l.send(ctx, func(c *client.Client) error {
			_, err := c.Patch(ctx, topic, id, patch, client.Cond{})
			return err
		})))
	}
	if j.cancel {
		l.book.cancelling(number)
		var outcome client.Outcome
		f := fateOf(l.send(ctx, func(c *client.Client) (err error) {
			outcome, err = c.Cancel(ctx, topic, id, client.Cond{})
			return err
		}))
		if f == yes && outcome != client.Prevented {
			f = pending // a call is running
		}
		l.book.cancel(number, f)
	}
}

// add repeats an add until somebody answers: the same id with the same content is the same timer,
// however often it is sent.
func (l *load) add(ctx context.Context, number int, dueMs int64) bool {
	spec := client.Spec{ID: timerID(number), At: time.UnixMilli(dueMs), Payload: json.RawMessage(payloadOf(number, 1))}
	for began := time.Now(); time.Since(began) < addPatience; {
		tried := time.Now()
		var added *client.Timer
		err := l.send(ctx, func(c *client.Client) (err error) {
			added, err = c.Add(ctx, topic, spec)
			return err
		})
		switch fateOf(err) {
		case yes:
			l.book.add(number, yes, shardOf(added), tried)
			return true
		case no:
			l.book.add(number, no, 0, tried)
			return false
		}
		if !rest(ctx, retryPause) {
			break
		}
	}
	return false
}

// rest waits, and returns false when the context ends first.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// send makes a call at one node after the other, as long as the request cannot have reached one.
func (l *load) send(ctx context.Context, call func(*client.Client) error) error {
	nodes := l.cluster.nodes
	var err error
	for range nodes {
		if err = call(nodes[int(l.turn.Add(1))%len(nodes)].client); !refused(err) {
			break
		}
	}
	return err
}

// refused tells that a request never left: nobody listens there.
func refused(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// fateOf is the fate of a change that ended so.
func fateOf(err error) fate {
	p, answered := errors.AsType[*client.Problem](err)
	switch {
	case err == nil:
		return yes
	case !answered, p.Status >= 500, p.Status == http.StatusTooManyRequests, p.Status == http.StatusRequestTimeout:
		return pending
	}
	return no
}

// shardOf is the beginning of a timer's uid.
func shardOf(t *client.Timer) int {
	digits, _, _ := strings.Cut(t.UID, "-")
	n, _ := strconv.ParseInt(digits, 16, 32) // 0, which is no shard, when it is none
	return int(n)
}
