// Package sink is a callback receiver for people and for tests.
//
// Server is the bare receiver: it reads one Delivery after another off HTTP
// and hands each to a function that answers with a status. The load tester
// builds on it.
//
// Sink builds on it too, and `carillon sink` runs it: it answers with a fixed status (after a
// latency, failing a share of the calls, if configured), checks every Standard Webhooks signature
// and every fence, prints a bounded number of lines about single callbacks, and prints its counts
// each second in which they changed and at the end.
//
// New binds nothing. Listen binds, Run serves until its context ends. Memory
// is bounded: fences are remembered for about a million timers, the least
// recently seen are forgotten first. Nothing is kept on disk, and a restarted
// sink knows no fences.
package sink
