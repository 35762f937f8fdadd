// Package clocks gives a node the time and reports whether the node can trust it.
//
// A machine has three clocks. The wall clock decides when a timer is due; people and time services
// set it forwards and backwards. The monotonic clock is never set, but stands still while the
// machine sleeps. The boot clock is never set and runs while the machine sleeps, unless the
// whole virtual machine was stopped.
//
// A Source reads all three at one moment. A Keeper compares them at each reading. Wall and boot
// clock advance by the same time, so a step of the wall clock shows in the first reading after it,
// before the node acts on it. A suspend is no step, because the boot clock also runs. After a
// step the Keeper continues the time that it trusted before, by the boot clock, and reports that in
// Moment.Trust. It does so until Judge confirms the new time: because most nodes share it, or, if
// no majority can be asked, because it has been steady for SteadyFor.
//
// Rules of use. A process has one Keeper, shared by all its goroutines. Code that starts, expires
// or forgets something because of the time does so only while Trust is Sure. A lease that the node
// holds itself is measured by Lease, which is never behind the time that has passed for others; all
// other durations are measured by Mono.
//
// The package imports nothing of ours, starts no goroutine, and reads the system's clocks only in
// clock.go.
package clocks
