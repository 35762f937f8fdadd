// Package e2e holds Carillon to its promises from outside: its tests build the real binary once,
// run it as processes, and talk to it as clients and receivers do. Nothing here imports Carillon's
// packages, and nothing is faked.
//
// A test has up to three witnesses: a client log (ledger) of every request with its answer,
// "unknown" included; a receiver in the test process that logs every arrival; and the node's own
// final state. The checker (verdict) compares them: lost, early, twice, altered, delivered after
// "prevented", fence not rising, webhook-id not kept.
//
// Where a test waits it polls with a deadline, as a client would, or for a signal. Figures are
// printed with -v.
//
// Tests of clusters (cluster_*_test.go) add a load generator that goes through all nodes, and a
// prober of each shard, which tells how long a shard takes no adds. What clients were told of each
// timer goes through porcupine, too (history_test.go). With -v a run ends with a table of what was
// done to clusters and what came of it.
//
// Tests that measure times, or whose calls have a second each, run first, each alone. All others
// are parallel: they wait more than they compute, so make runs four at once.
//
// Tests of wrong clocks build a second binary, with the tag chaos: its wall clock is as far off as
// a file says.
//
// The normal run takes about nine minutes on two cores; -short leaves out all but the quick half,
// and clusters. Longer runs by environment:
//
//	CARILLON_E2E_KILLS=50        rounds of kill -9 under load (10)
//	CARILLON_E2E_HERD=50000      timers due in one instant (3500)
//	CARILLON_E2E_BULK=200000     timers that are moved and cancelled by one request (20 thousand)
//	CARILLON_E2E_STORM=20000     timers changed and cancelled at the moment of firing (1500)
//	CARILLON_E2E_NASTY=5000      malformed requests on raw sockets (300)
//	CARILLON_E2E_FLIPS=200       flipped bytes in a log at rest (12)
//	CARILLON_E2E_SNAPSHOTS=20    rounds of kill -9 while snapshots are made and the log turns (2)
//	CARILLON_E2E_MILLION=1       a million timers for memory and time to ready after kill -9 (20 thousand)
//	CARILLON_E2E_CLUSTER_RATE=1000       adds a second in tests of clusters (200)
//	CARILLON_E2E_CLUSTER_KILLS=100       kills of a leader (3)
//	CARILLON_E2E_CLUSTER_PULL_KILLS=50   kills of a leader under consumers that pull (2)
//	CARILLON_E2E_CLUSTER_ROLLS=20        rounds of a rolling restart (1)
//	CARILLON_E2E_CLUSTER_PAUSES=20       stops of a leader (1)
//	CARILLON_E2E_CLUSTER_PAUSE=15        seconds of each (6)
//	CARILLON_E2E_CLUSTER_PARTITIONS=100  rounds of five partitions each (one of three)
//	CARILLON_E2E_CLUSTER_KEPT=100000     timers in a cluster that grows, or has a node wiped (1000)
//	CARILLON_E2E_CLUSTER_MISSED=3600000  adds that a node misses while it is down (2000)
//	CARILLON_E2E_CLUSTER_GROW=5          nodes that a cluster grows to (3); from 4 on it shrinks again, with 5 it ends with one copy again
//	CARILLON_E2E_CLUSTER_MOVES=50        replicas that move while nodes join, are drained and take part again (8)
//	CARILLON_E2E_CLUSTER_CHAOS=5         rounds of each kind of fault of TestClusterChaos (one short one of those that are its own)
//	CARILLON_E2E_CLUSTER_SIEGE=1h        instead: so long, one fault after the other, drawn at random
//	CARILLON_E2E_CLUSTER_FAULT=clock     of those only the faults whose names have this in them
//	CARILLON_E2E_LONG=1          tests that are too long for make ci, too
//	CARILLON_E2E_SEED=1          seed of all that is drawn at random (the clock's; printed)
//	CARILLON_E2E_RACE=1          build the binary with the race detector
//	CARILLON_E2E_BINARY=FILE     test this binary instead of building one
//
// Some parts need more than Go: failing and slow fsyncs need strace, a full disk needs the right to
// mount a tmpfs, partitions need root and iproute2 for network namespaces. Where that is missing
// those tests, and only those, are skipped, and say so.
package e2e
