//go:build canary

package sim

import (
	"flag"
	"testing"

	"carillon/shard"
	"carillon/transport/peer"
	"carillon/wal"
	"carillon/wheel"
)

// canaries are deliberate bugs, each of which must be found within so many seeds: else the simulator has gone blind.
var canaries = []string{
	"acknowledge-before-fsync", "no-directory-fsync", "fsync-retried", "vote-forgotten", "called-before-the-lease", "stale-lease-called",
	"another's-lease-returned", "old-epoch-accepted", "stale-row-followed", "cancel-lies", "leases-not-waited-out", "reads-not-confirmed",
	"any-content-is-the-same", "change-in-halves", "settled-too-early",
	"checksum-skipped", "zeros-end-the-log", "leases-not-in-snapshots", "cascade-off-by-one", "dropped-before-copied",
	"finished-forgotten-early", "repeated-add-fires-again", "successor-lost", "occurrence-left-out", "keys-overlap",
	"receipt-of-old-lease-accepted", "extension-forgotten", "head-let-by", "limit-forgotten", "hour-taken-twice",
	"retry-ignores-breaker", "one-breaker-for-all", amnesia, unsaid,
	"walk-skips-a-slot", "bulk-changes-any-version", "bulk-done-twice", "expired-called", "expired-forgotten",
	"content-made-twice", "content-scope-kept", "priority-ignored", "spread-by-number",
	"witness-silent", "leaver-appends",
	"unread-ends-the-file", "lost-end-not-told", "sum-of-frames-skipped",
}

// amnesia is no bug of the product's but of who runs it: a machine that lost its disk comes back under its old id.
const amnesia = "amnesia"

// unsaid is a bug of the limits' parts: each node goes by its own view of who leads.
const unsaid = "parts-unsaid"

const canarySeeds = 200

// flagAll goes on after a canary was found, to see by how many seeds it is.
var (
	flagAll    = flag.Bool("sim.all", false, "run all seeds, also after a canary was found")
	flagCanary = flag.Int("sim.canaryseeds", canarySeeds, "run so many seeds")
)

func TestEveryCanaryIsFound(t *testing.T) {
	for _, name := range canaries {
		t.Run(name, func(t *testing.T) {
			shard.Planted, wal.Planted, wheel.Planted, peer.Planted = name, name, name, name
			defer func() { shard.Planted, wal.Planted, wheel.Planted, peer.Planted = "", "", "", "" }()
			change := func(p *Plan) { p.amnesia, p.unsaid = name == amnesia, name == unsaid }
			found := 0
			for seed := *flagFirst; seed < *flagFirst+uint64(*flagCanary); seed++ {
				if r := run(t, Config{Seed: seed, Change: change}); r.Err != nil {
					t.Logf("found by seed %d after %s: %.160s", seed, r.Simulated, r.Err)
					if found++; !*flagAll {
						return
					}
				}
			}
			if found == 0 {
				t.Errorf("not found within %d seeds", *flagCanary)
			}
		})
	}
}
