// Package sim runs a whole cluster in one goroutine: real hosts on fake clocks, disks, a fake network, fake receivers and clients. All
// that happens is a function of one seed, so a run that went wrong is had again by its number.
//
// Rules of use:
//
//   - Run is called inside a bubble of testing/synctest, one at a time: raft draws its election time-outs from crypto/rand's Reader,
//     which Run replaces. Config.Settle is synctest.Wait: a host writes snapshots on goroutines of their own.
//   - A run has two phases. In the first anything may fail; in the second all is healed, and what was promised must come about (I14).
//   - What must never be is checked while it runs, by the names that PROMISE gives them: I1 to I9, I12, I14, I15.
//
// Nothing here is part of the product.
package sim
