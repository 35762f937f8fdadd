package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
)

// maxAnswerBytes bounds what is read of one answer: a page of a thousand timers with the largest payloads fits.
const maxAnswerBytes = 512 << 20

// call is one request to the API. Every part of path is escaped by apiPath.
type call struct {
	method  string
	path    string
	query   url.Values
	body    []byte
	ifMatch uint32 // 0: none; versions start at 1
}

// problem is an error answer (application/problem+json) with what the transport said around it.
type problem struct {
	Status     int    `json:"status"`
	Code       string `json:"code"`
	Title      string `json:"title"`
	Detail     string `json:"detail"`
	Outcome    string `json:"outcome"`
	Retryable  bool   `json:"retryable"`
	retryAfter string
}

func (p *problem) Error() string {
	text := cmp.Or(p.Detail, p.Title, http.StatusText(p.Status), "refused")
	text += fmt.Sprintf(" (%s)", strings.TrimSpace(fmt.Sprintf("%d %s", p.Status, p.Code)))
	if p.Outcome != "" {
		text += ": the timer is " + strings.ReplaceAll(p.Outcome, "_", " ")
	}
	return text + p.advice()
}

// advice says what to do next, where that is the same whatever the command was.
func (p *problem) advice() string {
	switch {
	case p.Status == http.StatusUnauthorized:
		return "; give a token with --token or CARILLON_TOKEN (carillon token makes one)"
	case p.Status == http.StatusForbidden:
		return "; this token's scopes or topics in the node's auth file do not reach that far"
	case p.Status == http.StatusPreconditionFailed:
		return "; it was changed meanwhile: look at it again and repeat with its version"
	case p.Retryable && p.retryAfter != "":
		return "; try again in " + p.retryAfter + " s"
	case p.Retryable:
		return "; try again"
	}
	return ""
}

// apiPath joins escaped parts under /v1.
func apiPath(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, part := range parts {
		escaped[i] = url.PathEscape(part)
	}
	return "/v1/" + strings.Join(escaped, "/")
}

// do answers with the status and body of a 2xx, and an error for all else.
func (c *ctlCmd) do(r call) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	address := strings.TrimRight(c.URL, "/") + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, bytes.NewReader(r.body))
	if err != nil {
		return 0, nil, usagef("--url: %v", err)
	}
	req.Header.Set("User-Agent", "carillon-ctl/"+version())
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if r.ifMatch != 0 {
		req.Header.Set("If-Match", fmt.Sprintf(`"%d"`, r.ifMatch))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, c.unanswered(r, err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return 0, nil, c.unanswered(r, err)
	}
	if resp.StatusCode/100 != 2 {
		return 0, nil, readProblem(resp, body)
	}
	return resp.StatusCode, body, nil
}

// unanswered explains a request without an answer: was it made, and what now?
func (c *ctlCmd) unanswered(r call, err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no node answers at %s; start one with carillon serve, or name another with --url", c.URL)
	case r.method != http.MethodGet && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer from %s within %s: the change may or may not have been made; look before repeating it", c.URL, c.Timeout)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer from %s within %s (see --timeout)", c.URL, c.Timeout)
	}
	return fmt.Errorf("%s %s: %w", r.method, r.path, err)
}

func readProblem(resp *http.Response, body []byte) error {
	p := &problem{}
	if err := json.Unmarshal(body, p); err != nil || (p.Detail == "" && p.Title == "") {
		text := strings.TrimSpace(string(body[:min(len(body), 200)]))
		return fmt.Errorf("the answer is %s and no explanation that a Carillon node gives (is --url right?): %q", resp.Status, text)
	}
	p.Status, p.retryAfter = resp.StatusCode, resp.Header.Get("Retry-After")
	return p
}
