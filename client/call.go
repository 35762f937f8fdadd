package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxAnswerBytes bounds an answer. A page of a thousand timers with the largest payloads fits.
const maxAnswerBytes = 512 << 20

// Request is one call of the API as Do makes it.
type Request struct {
	Method string
	Path   string // as Path makes it
	Query  url.Values
	Body   []byte // JSON; nil: none

	IfMatch    uint32 // the call is for this version only; 0: for any
	IfTopic    string // … of the topic: Topic.Version
	CreateOnly bool   // of a PUT: refused where the id is in use

	IdempotencyKey string // of an add without an id; empty: none

	// Topic and Timer name the one timer that the call is about: it goes to the node that leads its
	// shard, if that is known. Empty: it is not about one timer, or that has no id yet.
	Topic, Timer string

	// Status is set to that of a 2xx answer; nil: it is not wanted.
	Status *int

	// Repeatable calls ask for the same when they are made twice, and are repeated: see
	// Options.Retries.
	Repeatable bool

	// mayRepeat is asked before a Repeatable call is repeated that may have been done; nil: it may.
	mayRepeat func(context.Context) bool
}

// Path is the path of a call: /v1/ and the parts, each of them escaped.
func Path(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = url.PathEscape(part)
	}
	return "/v1/" + strings.Join(escaped, "/")
}

// Do makes a call and returns the body of a 2xx as it came. It is for programs that pass requests
// or answers through, and for routes of a newer node; all the other methods are made of it. Errors
// are those of the package comment.
func (c *Client) Do(ctx context.Context, r Request) ([]byte, error) {
	for try := 0; ; try++ {
		answer, err := c.answer(ctx, &r)
		wait, again := c.again(err, try)
		if !r.Repeatable || !again || ctx.Err() != nil || c.sleep(ctx, wait) != nil {
			return answer, err
		}
		if r.mayRepeat != nil && !notDone(err) && !r.mayRepeat(ctx) {
			return answer, err
		}
	}
}

// call is Do with a body to encode and an answer to decode; nil: none.
func (c *Client) call(ctx context.Context, r Request, body, answer any) error {
	var err error
	if body != nil {
		if r.Body, err = encode(body); err != nil {
			return fmt.Errorf("client: %s %s: %w", r.Method, r.Path, err)
		}
	}
	data, err := c.Do(ctx, r)
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("client: %s %s: read the answer: %w", r.Method, r.Path, err)
	}
	return nil
}

// again reports whether and when a repeatable call that ended so is repeated.
func (c *Client) again(err error, try int) (time.Duration, bool) {
	if err == nil || try >= c.options.Retries {
		return 0, false
	}
	if p := asProblem(err); p != nil {
		if p.Status != http.StatusTooManyRequests && p.Status != http.StatusServiceUnavailable {
			return 0, false
		}
	} else if _, ok := errors.AsType[*unanswered](err); !ok {
		return 0, false
	}
	return c.pause(err, try), true
}

// pause is how long to wait before a call is made again that ended so, after as many tries before.
func (c *Client) pause(err error, try int) time.Duration {
	longest := 50 * time.Millisecond << min(try, 10)
	c.chanceMu.Lock()
	pause := longest/2 + time.Duration(c.chance.Int64N(int64(longest)))
	c.chanceMu.Unlock()
	if p := asProblem(err); p != nil {
		pause = max(pause, p.RetryAfter)
	}
	return min(pause, c.options.MaxWait)
}

// unanswered is a request that has no whole answer.
type unanswered struct {
	what string
	err  error
}

func (u *unanswered) Error() string { return "client: " + u.what + ": " + u.err.Error() }
func (u *unanswered) Unwrap() error { return u.err }

// neverSent reports that no connection could be made. No node has seen the request then, so another
// node may be given it, for any method.
func neverSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// notDone reports that a call that ended so has changed nothing.
func notDone(err error) bool {
	p := asProblem(err)
	if p == nil {
		return neverSent(err)
	}
	return p.Status == http.StatusTooManyRequests || p.Code == ErrNoLeader || p.Code == ErrOverloaded || p.Code == ErrLowDisk
}

// open makes the call at the first node that takes a connection. See send for what it returns.
func (c *Client) open(ctx context.Context, r *Request) (resp *http.Response, passOver func(), err error) {
	for tried := 1; ; tried++ {
		resp, passOver, err = c.send(ctx, r)
		if !neverSent(err) || tried >= len(c.nodes) || ctx.Err() != nil {
			return resp, passOver, err
		}
	}
}

// answer is open with the whole answer. After a failure, and a 503, the next call goes to the next
// node.
func (c *Client) answer(ctx context.Context, r *Request) ([]byte, error) {
	resp, passOver, err := c.open(ctx, r)
	if err != nil {
		return nil, err
	}
	return readAnswer(r, resp, passOver)
}

func readAnswer(r *Request, resp *http.Response, passOver func()) ([]byte, error) {
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		passOver()
		return nil, &unanswered{r.Method + " " + r.Path, err}
	}
	return data, nil
}

// send makes the call at one node. A 2xx comes with its body to be read, and with a function that
// has the next call go to the next node. Anything else is an error.
func (c *Client) send(ctx context.Context, r *Request) (resp *http.Response, passOver func(), err error) {
	at := c.current.Load()
	passOver = func() { c.current.CompareAndSwap(at, at+1) }
	node, leads := c.leaders.Node(r.Topic, r.Timer)
	if leads {
		passOver = func() {
			c.leaders.Forget(r.Topic, r.Timer)
			if int(at)%len(c.nodes) == node {
				c.current.CompareAndSwap(at, at+1)
			}
		}
	} else {
		node = int(at) % len(c.nodes)
	}
	address := c.nodes[node] + r.Path
	if len(r.Query) > 0 {
		address += "?" + r.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, address, bytes.NewReader(r.Body))
	if err != nil {
		return nil, nil, fmt.Errorf("client: %w", err)
	}
	c.options.fillHeader(req.Header, r)
	if resp, err = c.options.HTTP.Do(req); err != nil {
		passOver()
		return nil, nil, &unanswered{r.Method + " " + r.Path, err}
	}
	if said := resp.Header.Get(LeaderHeader); said != "" {
		c.leaders.Note(said)
	}
	if resp.StatusCode/100 == 2 {
		if r.Status != nil {
			*r.Status = resp.StatusCode
		}
		return resp, passOver, nil
	}
	data, err := readAnswer(r, resp, passOver)
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		passOver()
	}
	return nil, nil, readProblem(resp, data)
}

func (o *Options) fillHeader(h http.Header, r *Request) {
	h.Set("User-Agent", o.UserAgent)
	if r.Body != nil {
		h.Set("Content-Type", "application/json")
	}
	if o.Token != "" {
		h.Set("Authorization", "Bearer "+o.Token)
	}
	if r.IfTopic != "" {
		h.Set("If-Match", `"`+r.IfTopic+`"`)
	}
	if r.IfMatch != 0 {
		h.Set("If-Match", `"`+strconv.FormatUint(uint64(r.IfMatch), 10)+`"`)
	}
	if r.IdempotencyKey != "" {
		h.Set("Idempotency-Key", `"`+r.IdempotencyKey+`"`)
	}
	if r.CreateOnly {
		h.Set("If-None-Match", "*")
	}
}

// encode is json.Marshal without the escapes for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
