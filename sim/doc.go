// Package sim runs a whole cluster in one goroutine: real hosts on fake clocks, disks, a fake network, fake receivers and clients. All
// that happens is a function of one seed, so a run that went wrong is had again by its number.
//
// Rules of use:
//
//   - Run is called inside a bubble of testing/synctest, one at a time: raft draws its election time-outs from crypto/rand's Reader,
//     which Run replaces. Config.Settle is synctest.Wait: a host writes snapshots on goroutines of their own.
//   - A run has two phases. In the first anything may fail; in the second all is healed, and what was promised must come about (I14).
//   - What must never be is checked while it runs, by the names that PROMISE gives them: I1 to I10, I12, I14 to I19, I21; series by
//     name. Topics "one" and "two" have linearizable histories, the others rules of their own (featureChecker).
//   - What goes wrong is drawn (swarm), in two runs of three densely of one kind (mood). Where a rare moment is worth more than chance gives it,
//     trouble follows it: see doubt.
//   - A seed is worth something for one build only, as every change shifts the draws. What a seed found is kept as a test of its own:
//     shard/regress_test.go, ring.TestPlanTakesBackAPromotion; or, where only a cluster shows it, as a mutant (anothers-lease-returned,
//     stale-row-followed, settled-too-early). Deliberate bugs are patches in sim/mutants, never code of the product's.
//
// Nothing here is part of the product.
package sim
