package callback

import (
	"crypto/tls"
	"math"
	"time"

	"carillon/transport/callback/address"

	"github.com/valyala/fasthttp"
)

// noCleaner has AcquireConn start no goroutine that closes idle connections: it would sleep for as
// long as they may be idle, one for each destination, and nothing could end it. See closeIdle.
const noCleaner = true

// newClient returns the client that pools and dials the destination's connections. The calls on
// them are ours, see roundTripper.
func (d *destination) newClient() *fasthttp.HostClient {
	client := &fasthttp.HostClient{
		Addr:             d.key.HostPort(),
		DialTimeout:      d.dial,
		ConnPoolStrategy: fasthttp.LIFO, // The freshest is the least likely to have been closed.
		MaxConns:         math.MaxInt,   // Package slots bounds the calls.
	}
	if d.key.Scheme == "https" {
		client.IsTLS, client.TLSConfig = true, d.pool.tlsConfig(d.key)
	}
	return client
}

// closeIdle closes the idle connections that were last used before the given time. The sweep alone
// calls it. A destination that was dropped meanwhile keeps none.
func (d *destination) closeIdle(before time.Time) {
	d.closeIdleOf(d.client.IdleConnsCount(), before)
	if d.dropped.Load() {
		d.client.CloseIdleConnections()
	}
}

// closeIdleOf takes n idle connections out of the pool, the last used first, and puts those that
// are kept back in the opposite order.
func (d *destination) closeIdleOf(n int, before time.Time) {
	if n == 0 {
		return
	}
	pooled, err := d.client.AcquireConn(idleOnly, noCleaner)
	if err != nil {
		return // The rest are in use by now.
	}
	d.closeIdleOf(n-1, before)
	if countingConnOf(pooled.Conn()).lastUse.Before(before) {
		d.client.CloseConn(pooled)
	} else {
		d.client.ReleaseConn(pooled)
	}
}

// tlsConfig is the configuration that all connections to one destination share. Its session is
// resumed, which saves the receiver a signature and the call a round of certificates. A destination
// has a cache of its own because crypto/tls names a session by the host alone, and another port may
// be another's.
func (p *Pool) tlsConfig(k address.Key) *tls.Config {
	return &tls.Config{
		ServerName:         k.Host,
		RootCAs:            p.config.RootCAs,
		NextProtos:         []string{"http/1.1"},
		MinVersion:         tls.VersionTLS12,
		ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}
}
