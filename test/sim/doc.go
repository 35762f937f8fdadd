// Package sim simulates a whole cluster in one goroutine: real hosts, members and routers on fake
// clocks, disks and networks, with fake clients and receivers. A run is a function of one seed, so
// any failure can be replayed.
//
// Rules of use:
//
//   - Call Run inside a bubble of testing/synctest, one at a time: it replaces crypto/rand's
//     Reader, from which raft draws its election timeouts, and has indexes hash alike each time
//     (index.Fixed). Config.Settle is synctest.Wait, because
//     a host writes snapshots on goroutines of its own.
//   - A run has two phases. In the first anything may fail. In the second all faults are over, and
//     the cluster must serve, fire every timer and agree (I14).
//   - Checkers test the invariants during the run and at its end. A Violation carries the name of
//     the invariant (docs/ARCHITECTURE.md), or of the feature. The histories of topics "one" and
//     "two" must be linearizable; the other topics have rules of their own (featureChecker).
//   - Faults are drawn per run (swarm). Six runs in seven are dense with one kind (profile). Rare
//     moments get extra requests where chance alone would miss them (doubt).
//   - Every change of the code shifts the draws, so a seed is only valid for one build. A bug that
//     a seed has found becomes a test of its own (shard/regress_test.go,
//     ring.TestPlanTakesBackAPromotion). If only a cluster shows it, it becomes a mutant in
//     test/sim/mutants (old-epoch-accepted, dropped-before-copied, settled-too-early).
//
// Package sim is not part of the product. README.md says how to replay a seed, add a fault and add
// a check.
package sim
