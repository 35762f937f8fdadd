// Package client talks to a Carillon cluster over its public HTTP API, and receives its callbacks.
//
// A Client makes the calls: timers (Add, Put, Patch, Cancel, Get, Fire, List, Batch), topics, dead
// letters, history, bulk changes, the nodes of the cluster, and the consumer's side of pull topics
// (Work, or Pull, Ack, Nack, Extend); Events yields events as they happen. It is safe for use by
// many goroutines. Each call takes a context, which is its only limit of time: a long poll or a
// bulk change may take minutes.
//
// A refusal is a *Problem; errors.Is finds its code: errors.Is(err, client.ErrInFlight). Any other
// error means that there was no answer, and then a change may or may not have been made. Calls that
// are safe to repeat are repeated, within Options.Retries, on 429 and 503 and when the connection
// failed: reads, Cancel without a condition, PutTopic, Ack, Nack, Extend, changes of a node but its
// removal, a Put without a condition or a count and with an absolute time, and an Add with an id
// and an absolute time or with an IdempotencyKey, that does not repeat and names no merge rule but
// MergeReject; where it may have been done and the rule is the topic's, only if that rejects, too.
// For all others, look, or use a Cond. A node that takes no connection has seen nothing: the next
// node is then given any call.
//
// A Receiver is the other side: a middleware that checks the caller, drops calls of leases that are
// over, and reads which timer a call is about. Calls come at least once: a handler must bear a
// second one with the same Delivery.ID. The value that its function returns decides the next step:
// nil, an error (the topic's backoff), RetryAfter, or Stop.
//
// A duration is a time.Duration everywhere; it travels as text.
//
// The package is a module of its own and imports the standard library alone. A module that uses it
// from a clone needs
//
//	go mod edit -require carillon/client@v0.0.0 -replace carillon/client=/path/to/carillon/client
package client
