// Package freeport finds addresses for nodes that tests start.
package freeport

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// lastPort counts the ports that were handed out. They lie below the system's ephemeral ports, so
// that no outgoing connection takes a port before its node listens or while its node is down.
var lastPort atomic.Int32

const (
	lowestPort  = 20_000
	highestPort = 31_900
)

// Address returns a loopback address whose port is free for TCP and UDP.
func Address(t testing.TB) string {
	t.Helper()
	lastPort.CompareAndSwap(0, int32(os.Getpid()%1000*11+1))
	for range highestPort - lowestPort {
		port := lowestPort + int(lastPort.Add(1))%(highestPort-lowestPort)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		listener, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		packets, err := net.ListenPacket("udp", address)
		_ = listener.Close()
		if err == nil {
			_ = packets.Close()
			return address
		}
	}
	t.Fatal("no port is free")
	return ""
}
