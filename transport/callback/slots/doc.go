// Package slots shares out the calls that a node makes at once, so that nobody's receivers can take
// them all.
//
// A slot is leave for one call. The node's slots are divided into two halves: one for receivers
// that have answered, one for calls that may hang. Within a half the free slots decide how many one
// user may have: a receiver may have three times as many calls as are free, a topic seven times,
// and a tenant fifteen times. So the next receiver, topic or tenant always finds a slot, and those
// that wait are served by the free slots that they need: fairly by tenant, then topic, then
// receiver. Where needs are equal, the one that was served longest ago goes first. Besides, a
// receiver has a limit of calls at once, which comes with each request.
//
// A request that gets no slot waits in one of two places:
//
//   - at the receiver, where calls are running: it gets the slot of the next call, in turn by
//     breaker, then topic, and within a topic by the parts that come with the requests;
//   - at the node, as a topic, where no call to this receiver is running: the topic gets a slot
//     without a receiver, a credit, and chooses the receiver then. So a topic with 100,000
//     receivers waits once, and not 100,000 times.
//
// Cost: every operation is O(log n) at most, for n tenants, n topics of a tenant, and n receivers
// of a topic that wait. Only the distinct limits of one receiver are a list that is searched.
//
// Memory: what has calls or waits, and keptShares topics.
//
// Slots has no clock, lock or goroutine. Its owner calls it under a lock, asks the breakers through
// it, and hands out the grants that Serve returns. Acquire, Release, Wake and TakeRefused must be
// followed by Serve.
package slots
