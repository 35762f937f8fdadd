package ctl

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

// do makes a call and returns the answer as it came.
func (c *Command) do(r client.Request) ([]byte, error) {
	change := r.Method != http.MethodGet
	return within(c, change, func(ctx context.Context) ([]byte, error) { return c.client.Do(ctx, r) })
}

// show makes a call and prints its answer: as it came with --json, else by print.
func (c *Command) show(term *terminal.Terminal, r client.Request, print func(body []byte) error) error {
	body, err := c.do(r)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(term.Out, body)
	}
	return print(body)
}

// reading decodes an answer for print.
func reading[T any](print func(*T) error) func(body []byte) error {
	return func(body []byte) error {
		answer, err := answerOf[T](body, nil)
		if err != nil {
			return err
		}
		return print(answer)
	}
}

// within makes a call that ends in time, and explains its failure: a change may have been made
// though no answer came.
func within[T any](c *Command, change bool, call func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	answer, err := call(ctx)
	return answer, c.explain(err, change)
}

func (c *Command) explain(err error, change bool) error {
	p, refused := errors.AsType[*client.Problem](err)
	nodes := strings.Join(c.URL, ", ")
	switch {
	case refused:
		return explained{refusal(p), p}
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no node answers at %s; start one with carillon serve, or name another with --url", nodes)
	case isUntrusted(err):
		return fmt.Errorf("%w; --ca FILE (CARILLON_CA) names the authority to trust", err)
	case errors.Is(err, context.DeadlineExceeded) && change:
		return fmt.Errorf("no answer from %s within %s: the change may or may not have been made; look before repeating it", nodes, c.Timeout)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer from %s within %s (see --timeout)", nodes, c.Timeout)
	}
	return err
}

func isUntrusted(err error) bool {
	_, is := errors.AsType[x509.UnknownAuthorityError](err)
	return is
}

// explained is an error in words for a person.
type explained struct {
	text  string
	cause error
}

func (e explained) Error() string { return e.text }
func (e explained) Unwrap() error { return e.cause }

// refusal is the text of a problem, with advice.
func refusal(p *client.Problem) string {
	if p.Code == "" {
		return fmt.Sprintf("the answer is %s (is --url right?)", p.Detail)
	}
	detail := asFlags.Replace(cmp.Or(p.Detail, p.Title, http.StatusText(p.Status)))
	text := fmt.Sprintf("%s (%d %s)", detail, p.Status, p.Code)
	if e := p.Existing; e != nil {
		text += fmt.Sprintf(": there is version %d, %s, due %s", e.Version, e.State, instant(e.Due))
	}
	return text + advice(p)
}

// asFlags names a query parameter in a node's text as the flag that sets it, and a call as the
// command that makes it.
var asFlags = strings.NewReplacer("?force=true", "--force", "?accept_loss=true", "--accept-loss",
	"PATCH changes the given fields only", "carillon ctl topics set changes the given fields only")

// advice names the next step, where that is the same for all commands.
func advice(p *client.Problem) string {
	switch {
	case p.Status == http.StatusUnauthorized:
		return "; give a token with --token or CARILLON_TOKEN (carillon token makes one)"
	case p.Status == http.StatusForbidden:
		return "; the node's auth file says what this token may do"
	case p.Status == http.StatusPreconditionFailed:
		return "; it was changed meanwhile: look at it again and repeat with its version"
	case p.Retryable && p.RetryAfter > 0:
		return fmt.Sprintf("; try again in %.0f s", p.RetryAfter.Seconds())
	case p.Retryable:
		return "; try again"
	}
	return ""
}

// answerOf reads the answer of a call.
func answerOf[T any](answer []byte, err error) (*T, error) {
	into := new(T)
	if err == nil {
		err = readAnswer(answer, into)
	}
	return into, err
}

func readAnswer(answer []byte, into any) error {
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("read the answer (is --url right?): %w", err)
	}
	return nil
}

const (
	nodeTimeout = 5 * time.Second // for a question to one node among several
	patience    = time.Second     // with a node, before another one is asked
)

// firstUp is the nodes of --url with the first that is up in front. One that hangs takes
// connections as others do, so each is asked whether it lives.
func (c *Command) firstUp() []string {
	for i, url := range c.URL {
		ctx, cancel := context.WithTimeout(context.Background(), min(c.Timeout, patience))
		up := c.lives(ctx, url)
		cancel()
		if up {
			return slices.Concat(c.URL[i:], c.URL[:i])
		}
	}
	return c.URL
}

func (c *Command) lives(ctx context.Context, url string) bool {
	one, err := client.New([]string{url}, c.options)
	if err != nil {
		return false
	}
	_, err = one.Do(ctx, client.Request{Method: http.MethodGet, Path: "/healthz"})
	_, answered := errors.AsType[*client.Problem](err)
	return err == nil || answered
}
