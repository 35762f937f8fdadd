// Package freeport finds addresses for nodes that tests start.
package freeport

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
)

// Ports lie below the system's ephemeral ports, so that no outgoing connection takes a port before
// its node listens or while its node is down. They are handed out in blocks: a process that has a
// block listens at the block's first port until it ends, so that no other test takes its ports while
// they have no listener.
const (
	lowestPort  = 20_000
	highestPort = 31_900
	blockPorts  = 50
	blocks      = (highestPort - lowestPort) / blockPorts
)

var (
	mu   sync.Mutex
	own  []int          // first ports of this process's blocks
	held []net.Listener // at them
	used int            // ports handed out, of all blocks
)

// Address returns a loopback address whose port is free for TCP and UDP.
func Address(t testing.TB) string {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	for range highestPort - lowestPort {
		if used == len(own)*(blockPorts-1) && !takeBlock() {
			used = 0 // all are taken: its own go round
		}
		if len(own) == 0 {
			break
		}
		address := fmt.Sprintf("127.0.0.1:%d", own[used/(blockPorts-1)]+1+used%(blockPorts-1))
		used++
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

// takeBlock makes the next free block this process's own. Where it begins to look differs by
// process.
func takeBlock() bool {
	for i := range blocks {
		first := lowestPort + (os.Getpid()*7+len(own)+i)%blocks*blockPorts
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first)); err == nil {
			own, held = append(own, first), append(held, listener)
			return true
		}
	}
	return false
}
