package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Options of a Client. The zero value is good for a node without tokens.
type Options struct {
	Token string // crl_…; empty: none is sent; white space around it is dropped
	// HTTP makes the requests. nil: an own one, that has no limit of time but the context's. Its
	// CheckRedirect is not used: no redirect is followed, since another host would get the token
	// and the request.
	HTTP *http.Client
	// TLS is how https nodes are spoken to: which authorities are trusted, and which certificate is
	// shown where they ask for one. nil: as the system has it. It goes with an own HTTP only.
	TLS       *tls.Config
	UserAgent string // "carillon-client"
	// Retries is how often a call that is safe to repeat is repeated at most; 0 is 4, less than 0
	// never.
	Retries int
	// MaxWait is the longest pause before a repetition, even if Retry-After is longer; 0 is 10 s.
	MaxWait time.Duration
}

// ErrBadToken is of a token that cannot be sent.
var ErrBadToken = errors.New("client: the token has a space, a control character or another one that no token has")

// Client makes calls to one cluster.
type Client struct {
	nodes   []string
	current atomic.Uint32 // index of the node that answered last
	leaders *Leaders
	options Options
	// sleep waits, or returns the context's error.
	sleep func(ctx context.Context, d time.Duration) error

	chanceMu sync.Mutex
	chance   *rand.Rand // so that many clients do not come back at once
}

// New makes a client of the cluster that has nodes at these URLs. It connects to nothing yet. Any
// node takes any call; another one is tried when one does not answer. A call about one timer goes
// to the node that leads its shard, where an earlier answer has named that and it is one of these:
// see Leaders.
func New(urls []string, o Options) (*Client, error) {
	if len(urls) == 0 {
		return nil, errors.New("client: no URL of a node")
	}
	c := &Client{options: o, sleep: sleep, chance: newChance()}
	var addresses []string
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.User != nil {
			return nil, fmt.Errorf("client: %q is not an address such as http://127.0.0.1:7700", text)
		}
		c.nodes = append(c.nodes, strings.TrimRight(text, "/"))
		addresses = append(addresses, addressOf(u))
	}
	c.leaders = NewLeaders(addresses)
	if c.options.HTTP == nil {
		c.options.HTTP = newHTTP(o.TLS)
	} else {
		own := *o.HTTP
		c.options.HTTP = &own
	}
	c.options.HTTP.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.options.Token = strings.TrimSpace(o.Token)
	if strings.ContainsFunc(c.options.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return nil, ErrBadToken
	}
	c.options.UserAgent = cmp.Or(c.options.UserAgent, "carillon-client")
	switch {
	case o.Retries == 0:
		c.options.Retries = 4
	case o.Retries < 0:
		c.options.Retries = 0
	}
	if o.MaxWait <= 0 {
		c.options.MaxWait = 10 * time.Second
	}
	return c, nil
}

func newHTTP(tls *tls.Config) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
			TLSClientConfig:     tls,
			TLSHandshakeTimeout: 5 * time.Second,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     time.Minute, // the node closes idle connections after two
			ForceAttemptHTTP2:   false,
		},
	}
}

// Close closes idle connections.
func (c *Client) Close() { c.options.HTTP.CloseIdleConnections() }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
