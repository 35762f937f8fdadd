// Package wheel is a hierarchical timing wheel. It finds the timers that are due at a millisecond,
// out of millions, at a constant cost for add, remove and move.
//
// It holds handles, the slot numbers of its caller's timers, and a time for each. It has no clock,
// lock, goroutine, or pointer per timer: one owner calls it and passes the time. Followers of a
// replicated shard drive the same wheel from the shard's log and take fired timers out with Remove
// instead of Pop.
//
//	level  slot is          level spans     digit of the tick
//	0      1 ms             64 ms           bits  0- 5
//	1      64 ms            4.1 s           bits  6-11
//	2      4.1 s            4.4 min         bits 12-17
//	3      4.4 min          4.7 h           bits 18-23
//	4      4.7 h            12.4 days       bits 24-29
//	5      12.4 days        2.2 years       bits 30-35
//	6      2.2 years        139 years       bits 36-41
//	far    all after the current span of 2^42 ms, placed again when that ends
//
// A timer lives at the level of the highest base-64 digit in which its time differs from now, in
// the slot which that digit names (tokio's time/wheel places so; Linux's kernel/time/timer.c goes
// by the distance). When time reaches the start of a slot above level 0, the slot cascades: its
// timers move to lower levels. When it reaches a slot of level 0, all that slot's timers are due.
//
// Rules: a timer is never due early; rounding is the caller's. Timers come out in the order of the
// tick at which they became due, within a tick in the order of their last Add or Move, however
// Advance was sliced. Slots of level 0 become due in O(1); cascades are paid from Advance's budget.
//
// The wheel does not wake anybody, persist anything, or give memory back: it keeps nodes for the
// highest handle ever used.
package wheel
