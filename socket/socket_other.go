//go:build !unix

package socket

import "net"

// Wrap returns nc as it is.
func Wrap(nc net.Conn) net.Conn { return nc }
