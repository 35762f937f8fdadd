// Package ring holds the state that the nodes of a cluster agree on through raft group 0, the meta
// group: the topics with their policies, the nodes, and the placement, which has for every raft
// group the nodes of its replicas. It also holds the ways to that state: which nodes are out
// there (Members), how a cluster is founded (NextFounding), where replicas should be (Target,
// TargetFrom), and the next steps that bring them there (Plan).
//
// State is the meta group's state machine. The shard host applies committed commands to it from one
// goroutine; everybody else reads. Commands are made by this package (see Command) and carried by
// the host as opaque bytes. A command that is refused changes nothing.
//
// Plan is pure. The controller calls it on the meta group's leader about once a second, with the
// news of heartbeats, and proposes its answer. A row of the placement is intent: the group's own
// raft leader brings its membership to it and then reports it as settled. So a command that is late,
// lost or proposed twice costs a second and nothing else.
//
// Rules:
//  1. A row has an epoch, which grows with each change; a command for another epoch is refused.
//  2. One step at a time: a row that is not settled is not changed, except if the destination of
//     its move has died.
//  3. A replica id is its node's id and the epoch that made it. It is never used again in its
//     group.
//  4. The id of a removed node never comes back.
//
// Nothing here reads a clock, and gossip decides nothing: it is a hint of addresses and of nodes.
package ring
