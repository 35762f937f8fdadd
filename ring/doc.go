// Package ring holds what the nodes of a cluster agree on through raft group 0, the meta group. Today that is the topics
// with their policies; members and placement join them with the cluster.
//
// Topics is that group's state machine. The shard host applies committed commands to it from one goroutine; everybody else reads.
// Commands are made by this package (see Command) and carried by the host as opaque bytes.
package ring
