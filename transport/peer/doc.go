// Package peer is the node-to-node transport. It knows node ids and bytes only.
//
// A Transport keeps up to three connections in each direction of a pair of
// nodes, dialled by the side that sends, at first use:
//
//   - control: Send, one way, in order, dropped rather than delayed;
//   - call: Call, requests and replies, each on its own goroutine at the far end;
//   - bulk: SendFile, one file at a time, throttled, for as long as it takes.
//
// CallAddr makes a connection for one call, to a node whose id is not known yet.
//
// Rules of use:
//
//  1. New starts nothing; Run serves and blocks. Nothing is sent outside of Run.
//  2. Send never blocks; false means dropped. For a node whose address is known,
//     Handler.Unreachable reports it too, and also frames that were dropped later.
//  3. Call returns ErrNotSent where the handler certainly never saw the call,
//     ErrUnknown where it may have, and *RemoteError where it answered with an error.
//  4. Handler's methods run on the transport's goroutines. Frame holds up the
//     connection that it came by and must not block. Slices are the handler's.
//  5. Others take a refused connection as a hint that this process has ended
//     (Handler.SeemsGone). So end Run last: nothing should act as this node after it.
//
// Both ends ask Config.Admit before anything else is heard. A connection speaks
// every 500 ms and is given up after 3 s of silence. A frame with a bad checksum
// or a gap in the sequence closes its connection. The wire format is in frame.go
// and hello.go.
//
// It does not order frames over a reconnect, retry calls, or resume a file by
// itself: SendFile with the same header continues where the receiver stands.
package peer
