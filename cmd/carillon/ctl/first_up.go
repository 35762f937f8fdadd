package ctl

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"carillon/client"
)

const (
	nodeTimeout = 5 * time.Second // for a question to one node among several
	patience    = time.Second     // with a node that comes before one that has answered
)

// firstUp is the nodes of --url with the first that is up in front. One that hangs takes
// connections as others do: each is asked whether it lives, all at once.
func (c *Command) firstUp() []string {
	ctx, cancel := context.WithTimeout(context.Background(), min(c.Timeout, nodeTimeout))
	defer cancel()
	type result struct {
		node int
		up   bool
	}
	results := make(chan result, len(c.URL))
	for node, url := range c.URL {
		go func() { results <- result{node, c.lives(ctx, url)} }()
	}
	waited := time.After(patience)
	best, patient := len(c.URL), true
	known := make([]bool, len(c.URL))
	for answers := 0; answers < len(c.URL); {
		select {
		case r := <-results:
			answers++
			known[r.node] = true
			if r.up {
				best = min(best, r.node)
			}
		case <-waited:
			patient = false
		}
		if best < len(c.URL) && (!patient || !slices.Contains(known[:best], false)) {
			return slices.Concat(c.URL[best:best+1], c.URL[:best], c.URL[best+1:])
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
