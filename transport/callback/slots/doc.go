// Package slots shares out the calls that a node makes at once, so that nobody's
// receivers can take them all.
//
// A slot is leave for one call. Three bounds apply to it, for every caller:
//
//  1. A destination has a limit, which comes with each request.
//  2. The node has a maximum. The more of it one user has, the less is left for him:
//     a topic, and a tenant, may have three times as many calls as are free then. So
//     a part always stays free for the next: one alone gets three
//     quarters, ten get a bit less than a tenth each. One that has few calls out may
//     take a little more of the rest.
//  3. Calls that may hang are kept to half of the maximum, and divided by the same
//     rule: those to a destination that has not answered the last call, and those
//     with a long time-out. The other half is for receivers that answer.
//
// A caller that does not get a slot waits, and is served in turn: tenant by tenant, in each topic
// by topic, in each destination by destination.
//
// Slots has no clock, lock or goroutine. Its owner calls it under a lock, asks the breakers through
// it, and hands out the slots that Serve returns.
package slots
