package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// maxAnswerBytes bounds what is read of one answer: a page of a thousand timers with the largest payloads fits.
const maxAnswerBytes = 512 << 20

// call is one request. Every part of path is escaped by join.
type call struct {
	method string
	path   string
	query  url.Values
	body   any // encoded as JSON; nil: none
	safe   bool

	ifMatch    uint32
	createOnly bool
}

func join(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = url.PathEscape(part)
	}
	return "/v1/" + strings.Join(escaped, "/")
}

// do makes a call and reads a 2xx answer into answer, unless that is nil.
func (c *Client) do(ctx context.Context, r call, answer any) (status int, err error) {
	var body []byte
	if r.body != nil {
		if body, err = encode(r.body); err != nil {
			return 0, fmt.Errorf("client: %s %s: %w", r.method, r.path, err)
		}
	}
	for try := 0; ; try++ {
		status, err = c.once(ctx, &r, body, answer)
		wait, again := c.again(err, try)
		if !r.safe || !again || ctx.Err() != nil {
			return status, err
		}
		if c.sleep(ctx, wait) != nil {
			return status, err
		}
	}
}

// again says whether and when a safe call that ended so is made once more.
func (c *Client) again(err error, try int) (time.Duration, bool) {
	if err == nil || try >= c.options.Retries {
		return 0, false
	}
	pause := c.jittered(50 * time.Millisecond << min(try, 10))
	if p, ok := errors.AsType[*Problem](err); ok {
		if p.Status != http.StatusTooManyRequests && p.Status != http.StatusServiceUnavailable {
			return 0, false
		}
		pause = max(pause, p.RetryAfter)
	} else if _, ok := errors.AsType[*unanswered](err); !ok {
		return 0, false
	}
	return min(pause, c.options.MaxWait), true
}

// unanswered is a request that has no whole answer.
type unanswered struct {
	what string
	err  error
}

func (u *unanswered) Error() string { return "client: " + u.what + ": " + u.err.Error() }
func (u *unanswered) Unwrap() error { return u.err }

// once makes the call at one node. If that does not answer, or not now, the next call goes to the next one.
func (c *Client) once(ctx context.Context, r *call, body []byte, answer any) (int, error) {
	at := c.current.Load()
	address := c.nodes[int(at)%len(c.nodes)] + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("client: %w", err)
	}
	c.fillHeader(req.Header, r, body != nil)
	resp, err := c.options.HTTP.Do(req)
	if err != nil {
		c.current.CompareAndSwap(at, at+1)
		return 0, &unanswered{r.method + " " + r.path, err}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		c.current.CompareAndSwap(at, at+1)
		return 0, &unanswered{r.method + " " + r.path, err}
	}
	if resp.StatusCode/100 != 2 {
		if resp.StatusCode == http.StatusServiceUnavailable {
			c.current.CompareAndSwap(at, at+1)
		}
		return resp.StatusCode, readProblem(resp, data)
	}
	if answer != nil {
		if err := json.Unmarshal(data, answer); err != nil {
			return resp.StatusCode, fmt.Errorf("client: %s %s: read the answer: %w", r.method, r.path, err)
		}
	}
	return resp.StatusCode, nil
}

func (c *Client) fillHeader(h http.Header, r *call, hasBody bool) {
	h.Set("User-Agent", c.options.UserAgent)
	if hasBody {
		h.Set("Content-Type", "application/json")
	}
	if c.options.Token != "" {
		h.Set("Authorization", "Bearer "+c.options.Token)
	}
	if r.ifMatch != 0 {
		h.Set("If-Match", `"`+strconv.FormatUint(uint64(r.ifMatch), 10)+`"`)
	}
	if r.createOnly {
		h.Set("If-None-Match", "*")
	}
}

// encode is json.Marshal without the escapes for HTML: a payload is kept as it is sent.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
