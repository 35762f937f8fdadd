package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	addsPerSecond  = 200
	workers        = 128 // requests at once; when all wait, adds are left out
	requestTimeout = 3 * time.Second
	addPatience    = 15 * time.Second // an add is repeated until it is answered or so much has passed
	retryPause     = 25 * time.Millisecond
	callTimeout    = "1s" // of the topic's receiver: a new leader waits out what its predecessor may be calling
	topic          = "demo"
	maxAnswerBytes = 1 << 20
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
	policy := fmt.Sprintf(`{"callback":{"url":%q,"timeout":%q}}`, callback, callTimeout)
	return await(ctx, "nobody takes the topic", func() (bool, error) {
		a := l.send(ctx, http.MethodPut, "/v1/topics/"+topic, policy)
		if a.fate == no {
			return false, fmt.Errorf("demo: make the topic: status %d: %s", a.status, a.body)
		}
		return a.fate == yes, nil
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
	path := "/v1/topics/" + topic + "/timers/" + timerID(number)
	if j.change {
		dueMs = time.Now().UnixMilli() + j.newDelayMs
		l.book.changing(number, dueMs)
		body := fmt.Sprintf(`{"at_ms":%d,"payload":%s}`, dueMs, payloadOf(number, 2))
		l.book.change(number, l.send(ctx, http.MethodPatch, path, body).fate)
	}
	if j.cancel {
		l.book.cancelling(number)
		l.book.cancel(number, l.send(ctx, http.MethodDelete, path, "").cancelFate())
	}
}

// add repeats an add until somebody answers: the same id with the same content is the same timer, however often it is
// sent.
func (l *load) add(ctx context.Context, number int, dueMs int64) bool {
	body := fmt.Sprintf(`{"id":%q,"at_ms":%d,"payload":%s}`, timerID(number), dueMs, payloadOf(number, 1))
	for began := time.Now(); time.Since(began) < addPatience; {
		tried := time.Now()
		a := l.send(ctx, http.MethodPost, "/v1/topics/"+topic+"/timers", body)
		switch a.fate {
		case yes:
			l.book.add(number, yes, a.shard(), tried)
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

// answer is how a request ended.
type answer struct {
	fate   fate
	status int
	body   []byte
}

// send asks one node after the other, as long as the request cannot have reached one.
func (l *load) send(ctx context.Context, method, path, body string) answer {
	nodes := l.cluster.nodes
	a := answer{fate: pending}
	for range nodes {
		n := nodes[int(l.turn.Add(1))%len(nodes)]
		resp, err := l.ask(ctx, method, "http://"+n.http+path, body)
		if refused(err) {
			continue
		}
		if err != nil {
			return a
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
		resp.Body.Close()
		if err != nil {
			return a
		}
		a.status, a.body = resp.StatusCode, text
		switch {
		case a.status < 300:
			a.fate = yes
		case a.status < 500 && a.status != http.StatusTooManyRequests && a.status != http.StatusRequestTimeout:
			a.fate = no
		}
		return a
	}
	return a
}

func (l *load) ask(ctx context.Context, method, url, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return l.cluster.http.Do(req)
}

// refused tells that a request never left: nobody listens there.
func refused(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// shard is what a timer's uid begins with.
func (a answer) shard() int {
	var t struct {
		UID string `json:"uid"`
	}
	if json.Unmarshal(a.body, &t) != nil {
		return 0
	}
	digits, _, _ := strings.Cut(t.UID, "-")
	n, _ := strconv.ParseInt(digits, 16, 32) // 0, which is no shard, when it is none
	return int(n)
}

// cancelFate is yes when no call can come any more, no when the cancel came too late, and else pending.
func (a answer) cancelFate() fate {
	var c struct {
		Outcome string `json:"outcome"`
	}
	_ = json.Unmarshal(a.body, &c) // no outcome, then
	switch {
	case a.fate == yes && c.Outcome == "prevented":
		return yes
	case a.fate == no:
		return no
	}
	return pending
}
