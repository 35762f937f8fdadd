package web

import (
	"context"
	"net"
	"net/netip"
)

// Conn is a client's connection, as handlers that wait need it.
type Conn interface {
	net.Conn
	ClientAddress() netip.Addr // by which the client's shares are counted
	HungUp() bool
	// WhileConnected is a context that ends when the client hangs up.
	WhileConnected(context.Context) (ctx context.Context, stop func())
	// OnUndelivered has f called, once, if the answer cannot be written.
	OnUndelivered(f func())
	Trusted() bool
}
