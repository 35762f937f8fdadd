// Package e2e tests Carillon's promises from outside: it builds the real binary once, runs it as
// processes, and talks to them as clients and receivers do. Nothing is faked, and only the public
// Go client is imported.
//
// A test has up to three sources: a client log (ledger) of every request with its answer, "unknown"
// included; a receiver in the test process that logs every call; and the nodes' final state. The
// checker (verdict) compares them and finds timers that were lost, early, called twice, altered, or
// delivered after "prevented", fences that do not rise, and webhook-ids that change.
//
// Tests wait for a signal, or poll with a deadline. They log their figures with -v.
//
// Tests of clusters (cluster_*_test.go) add a load generator that uses all nodes, and a prober of
// each shard that measures how long the shard takes no adds. Porcupine checks that the answers
// about each timer are linearizable (linearizable_test.go). With -v a run ends with a table of the
// faults and their results.
//
// Tests that measure times, or whose calls have a timeout of a second, run first and alone. All
// others are parallel. They wait more than they compute, so make test runs four at once, make ci
// six.
//
// Tests of wrong clocks build a second binary, with the tag chaos, whose wall clock is wrong by as
// much as a file says.
//
// The normal run takes about eight minutes on two cores. -short runs only the quick half, without
// clusters. The environment sets longer runs; defaults are in parentheses:
//
//	CARILLON_E2E_KILLS=50        rounds of kill -9 under load (10)
//	CARILLON_E2E_HERD=50000      timers due in one instant (3500)
//	CARILLON_E2E_BULK=200000     timers that one request moves or cancels (20000)
//	CARILLON_E2E_STORM=20000     timers changed and cancelled at the moment of firing (1500)
//	CARILLON_E2E_RECEIVERS=50000 receivers of timers of one instant (5000; 100000 in long runs)
//	CARILLON_E2E_NASTY=5000      malformed requests on raw sockets (300)
//	CARILLON_E2E_FLIPS=200       flipped bits in a log at rest (12)
//	CARILLON_E2E_SNAPSHOTS=20    rounds of kill -9 during snapshots and log rotation (2)
//	CARILLON_E2E_MILLION=1       a million timers: memory, restart after kill -9 (20000)
//	CARILLON_E2E_CLUSTER_RATE=1000       adds a second in tests of clusters (200)
//	CARILLON_E2E_CLUSTER_KILLS=100       kills of a leader (3)
//	CARILLON_E2E_CLUSTER_PULL_KILLS=50   kills of a leader under pulling consumers (2)
//	CARILLON_E2E_CLUSTER_ROLLS=20        rounds of a rolling restart (1)
//	CARILLON_E2E_CLUSTER_PAUSES=20       stops of a leader (1)
//	CARILLON_E2E_CLUSTER_KILL_EACH=60    seconds between two kills, at least (0)
//	CARILLON_E2E_CLUSTER_PAUSE=15        seconds of each stop (6)
//	CARILLON_E2E_CLUSTER_PARTITIONS=100  rounds of five partitions (one of three)
//	CARILLON_E2E_CLUSTER_KEPT=100000     timers in a cluster that grows or refills a node (1000)
//	CARILLON_E2E_CLUSTER_MISSED=3600000  adds that a node misses while it is down (2000)
//	CARILLON_E2E_CLUSTER_STOCK=1000000   timers acknowledged before nodes are damaged or lose
//	                                     their power (20000)
//	CARILLON_E2E_CLUSTER_GROW=5          nodes to grow to (3); from 4 on the cluster shrinks
//	                                     again, and with 5 it ends with one replica
//	CARILLON_E2E_CLUSTER_MOVES=50        replicas that move as nodes come and go (8)
//	CARILLON_E2E_CLUSTER_CHAOS=5         rounds of each fault of TestClusterChaos (one short
//	                                     round of the faults that no other test tries)
//	CARILLON_E2E_CLUSTER_SIEGE=1h        instead, random faults for this long
//	CARILLON_E2E_CLUSTER_FAULT=clock     only faults with this in their names
//	CARILLON_E2E_LONG=1          also tests that are too long for make ci
//	CARILLON_E2E_SEED=1          seed of everything random (from the clock, and printed)
//	CARILLON_E2E_RACE=1          build the binary with the race detector
//	CARILLON_E2E_BINARY=FILE     test this binary instead of building one
//
// Some tests need more than Go: slow and failing fsyncs need strace, a full disk needs the right to
// mount a tmpfs, power cuts need root, mkfs.ext4 and loop devices, and partitions need root and
// iproute2 for network namespaces. Only those tests are skipped where that is missing, with a
// message.
package e2e
