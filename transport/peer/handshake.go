package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// clientHandshake is the dialler's half of a handshake. want 0 = any node.
func (t *Transport) clientHandshake(ctx context.Context, raw net.Conn, lane Lane, want uint64) (net.Conn, Hello, error) {
	nc, with := raw, t.tls.Load()
	if with != nil {
		nc = tls.Client(nc, with.Client)
	}
	h, err := t.timed(ctx, nc, func() (Hello, error) {
		self := t.config.Self()
		body, err := encodeHello(self)
		if err != nil {
			return Hello{}, err
		}
		if _, err := nc.Write(greeting{protocolVersion, byte(lane), body}.encode()); err != nil {
			return Hello{}, err
		}
		g, err := readGreeting(nc)
		switch {
		case err != nil:
			return Hello{}, err
		case g.what == yourself:
			return Hello{}, fmt.Errorf("%w: %w", ErrRefused, ErrSelf)
		case g.what == refused:
			return Hello{}, fmt.Errorf("%w: %s", ErrRefused, printable(string(g.body)))
		case g.version != protocolVersion || g.what != welcome:
			return Hello{}, fmt.Errorf("%w: %s", ErrRefused, versionText(g.version))
		}
		h, err := decodeHello(g.body)
		if err != nil {
			return Hello{}, err
		}
		h.Lane = lane
		if want != 0 && h.Node != want && h.Node != self.Node {
			return Hello{}, fmt.Errorf("%w: node %d answers there, not node %d", ErrRefused, h.Node, want)
		}
		return h, t.authorize(self, h, nc, with)
	})
	return nc, h, err
}

// serverHandshake is the other half: it hears a hello and answers with ours, or with a refusal.
func (t *Transport) serverHandshake(raw net.Conn) (net.Conn, Hello, error) {
	nc, with := raw, t.tls.Load()
	if with != nil {
		nc = tls.Server(nc, with.Server)
	}
	h, err := t.timed(t.ctx, nc, func() (Hello, error) {
		g, err := readGreeting(nc)
		if errors.Is(err, errSpeaksTLS) {
			// No TLS: that is how the dialler notices.
			_, _ = nc.Write(greeting{protocolVersion, refused, []byte(err.Error())}.encode())
		}
		if err != nil {
			return Hello{}, err
		}
		self := t.config.Self()
		h, err := t.checkHello(self, g, nc, with)
		if err != nil {
			no := greeting{protocolVersion, refused, []byte(refusalText(err))}
			if errors.Is(err, ErrSelf) {
				no.what = yourself
			}
			_, _ = nc.Write(no.encode()) // the connection is closed in any case
			return h, err
		}
		body, err := encodeHello(self)
		if err != nil {
			return h, err
		}
		_, err = nc.Write(greeting{protocolVersion, welcome, body}.encode())
		return h, err
	})
	return nc, h, err
}

// timed runs both layers of a handshake within HandshakeTimeout and ctx. A connection
// whose handshake failed is closed.
func (t *Transport) timed(ctx context.Context, nc net.Conn, talk func() (Hello, error)) (h Hello, err error) {
	stop := context.AfterFunc(ctx, func() { closeNow(nc) })
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			closeNow(nc)
		}
	}()
	if err := nc.SetDeadline(time.Now().Add(t.config.HandshakeTimeout)); err != nil {
		return Hello{}, err
	}
	if secure, ok := nc.(*tls.Conn); ok {
		if err := secure.HandshakeContext(ctx); err != nil {
			return Hello{}, tlsFault(err)
		}
	}
	if h, err = talk(); err != nil {
		return h, err
	}
	return h, nc.SetDeadline(time.Time{})
}

// onlyOverTLS refuses a dialler without TLS, in the one way that it understands.
const onlyOverTLS = "this node speaks over TLS only: give the dialler the key of the other nodes (--gossip-key), or a certificate"

// tlsFault adds how to mend it where one side speaks TLS and the other does not. Then err has the
// connection, if nothing has been written to it yet.
func tlsFault(err error) error {
	plain, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok {
		return fmt.Errorf("tls: %w", err)
	}
	if plain.Conn != nil {
		// It is closed in any case.
		_, _ = plain.Conn.Write(greeting{protocolVersion, refused, []byte(onlyOverTLS)}.encode())
	}
	return fmt.Errorf("tls: the other side speaks without it: give it the key (--gossip-key) or a certificate: %w", err)
}

// checkHello judges a dialler's hello. The error's text goes back to it.
func (t *Transport) checkHello(self Hello, g greeting, nc net.Conn, with *TLS) (Hello, error) {
	if g.version != protocolVersion {
		return Hello{}, errors.New(versionText(g.version))
	}
	if int(g.what) >= len(laneNames) {
		return Hello{}, errBadHello
	}
	h, err := decodeHello(g.body)
	if err != nil {
		return Hello{}, err
	}
	h.Lane = Lane(g.what)
	return h, t.authorize(self, h, nc, with)
}

// refusalText leaves out the prefix that the other side puts before it again.
func refusalText(err error) string {
	return printable(strings.TrimPrefix(err.Error(), ErrRefused.Error()+": "))
}

func versionText(version byte) string {
	return fmt.Sprintf("protocol version %d and version %d do not understand each other", version, protocolVersion)
}
