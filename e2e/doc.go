// Package e2e holds Carillon to its promises from outside: its tests build the real binary once, run it as processes,
// and talk to it as clients and receivers do. Nothing here imports Carillon's packages, and nothing is faked.
//
// A test has up to three witnesses: a client log (ledger) of every request with its answer, "unknown" included; a
// receiver in the test process that logs every arrival; and the node's own final state. The checker (verdict) compares
// them: lost, early, twice, altered, delivered after "prevented", fence not rising, webhook-id not kept.
//
// Where a test waits it polls with a deadline, as a client would, or for a signal. Figures are printed with -v.
//
// The normal run takes under 90 s on two cores; -short leaves out all but the quick half. Longer runs by environment:
//
//	CARILLON_E2E_KILLS=50        rounds of kill -9 under load (10)
//	CARILLON_E2E_HERD=50000      timers due in one instant (3500)
//	CARILLON_E2E_STORM=20000     timers changed and cancelled at the moment of firing (1500)
//	CARILLON_E2E_NASTY=5000      malformed requests on raw sockets (300)
//	CARILLON_E2E_FLIPS=200       flipped bytes in a log at rest (12)
//	CARILLON_E2E_SNAPSHOTS=20    rounds of kill -9 while snapshots are made and the log turns (2)
//	CARILLON_E2E_MILLION=1       a million timers for memory and time to ready after kill -9 (20 thousand)
//	CARILLON_E2E_SEED=1          seed of all that is drawn at random (the clock's; printed)
//	CARILLON_E2E_RACE=1          build the binary with the race detector
//	CARILLON_E2E_BINARY=FILE     test this binary instead of building one
//
// Two parts need more than Go: fsync failures need strace, a full disk needs the right to mount a tmpfs. Where that is
// missing those tests, and only those, are skipped, and say so.
package e2e
