// Package clocks tells a node what time it is, and whether it can go by that.
//
// A machine has three clocks. The wall clock says when a timer is due; people and time services
// set it, forwards and backwards. The monotonic clock is never set, but stands still while the
// machine sleeps. The boot clock is never set and goes on while the machine sleeps, unless the
// whole virtual machine was stopped.
//
// A Source reads the three at one moment. A Keeper compares them at each reading: wall and boot
// clock go on by the same time, so a step of the wall clock shows in the first reading after it,
// before anything was done by it. A suspended machine makes no step: its boot clock went on too.
// After a step the Keeper goes on from the time that it believed before, by the boot clock, and
// says so in Moment.Trust, until Judge finds the new time to be right: because most nodes share
// it, or, where no majority can be asked, because it has been steady for SteadyFor.
//
// Rules of use. One process has one Keeper, shared by all its goroutines. Whoever starts, expires
// or forgets something because of the time does so only while Trust is Sure. Whatever one node
// holds for a time (a lease in its own hands) is measured by Lease, which is never behind the
// time that has passed for others; all other spans are measured by Mono.
//
// The package imports nothing of ours, starts no goroutine, and reads a clock in clock.go alone.
package clocks
