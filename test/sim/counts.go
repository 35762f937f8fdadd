package sim

import (
	"encoding/json"
	"reflect"
	"slices"
)

// Counts count the events of a run: a run in which nothing happened proves nothing. TestSeeds
// requires that its runs together reach each of them.
type Counts struct {
	Acked, Unknown, Refused int // client operations
	// calls; calls answered 200; further calls of a timer whose last call was answered 200
	Started, Delivered, Twice int
	Crashes, Pauses           int
	Divided                   int // shards that have become two
	Elections                 int
	// assignments completed after the first; snapshots installed from a peer
	Moves, Installed      int
	Removed               int // processes that ended because their node was removed
	Snapshots, Reads      int
	Rots, Refusals        int // files damaged at rest; starts refused because of that
	Replaced              int // nodes that replaced themselves because of that
	Taken, Claims, Drains int // consumers' leases; operations on these leases; planned stops
	HungUp                int // consumers that disconnected during a waiting pull
	Bulks, Moved          int // bulk changes, and timers that they changed
	// pairs of timers that waited together; calls inside a spread window
	Ranked, Spread      int
	Expired, Same       int // expired timers; adds answered with the existing timer
	Rotations, Resealed int // secret keys put into use; commands that sealed secrets again
	// calls before their due time, asked for by hand; calls of redriven occurrences while their
	// series had one, or the other way round
	Asked, Parallel     int
	Overlapping         int // calls of an occurrence while another of its series has one
	Collected           int // payloads that were called in arrays
	Superseded          int // timers that a later add or a cancel ended
	Turns, TurnsRefused int // changes of delivery; those refused because timers were leased
	Crowds, Windowed    int // see crowd; calls within a window
	Outcomes            int // ends with an outcome
	Paused              int // timers held by a client
	Answers             int // timers shown with what their receivers answered
	PerKey, InTurn      int // calls of keys with a rate; of keys whose turn comes while another has a herd
	Keyless             int // calls of timers without a key, in a topic with limits or turns by key
	Batches, Batched    int // calls of many timers, and their timers
	Laden               int // adds refused because memory was full
	// words that a process is gone, which lives, or its disk slow, which is not; requests to fence
	// a process
	FalseWords, SlowWords, Fences int
	ScenarioCounts
	ClockCounts
	DiskFaultCounts
	ReplicaFaultCounts
}

// add adds the counts of another run.
func (c *Counts) add(o *Counts) {
	addEach(reflect.ValueOf(c).Elem(), reflect.ValueOf(o).Elem())
}

func addEach(to, from reflect.Value) {
	for i := range to.NumField() {
		if f := to.Field(i); f.Kind() == reflect.Struct {
			addEach(f, from.Field(i))
		} else {
			f.SetInt(f.Int() + from.Field(i).Int())
		}
	}
}

// leastSeeds is how many seeds TestSeeds runs at least.
const leastSeeds = 500

// rare counts are those that fewer than a dozen of leastSeeds runs reach. Runs of their own cover
// them: TestSeedsAilments, TestSeedsReplicaFaults.
var rare = []string{"Unsent", "PutBack", "Identity", "Finalized"}

// never lists the counts that are zero after so many runs. Fewer than leastSeeds need not come to
// each scenario, fault of a disk and fault of a replica.
func (c *Counts) never(seeds int) (names []string) {
	v := reflect.ValueOf(c).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		nested := len(f.Index) > 1
		if f.Anonymous || v.FieldByIndex(f.Index).Int() != 0 || nested && (seeds < leastSeeds || slices.Contains(rare, f.Name)) {
			continue
		}
		names = append(names, f.Name)
	}
	return names
}

// sum is the total of the runs of one test process.
type sum struct {
	Seeds       int
	SimulatedNs int64
	Counts      Counts
}

func (s *sum) add(o *sum) {
	s.Seeds += o.Seeds
	s.SimulatedNs += o.SimulatedNs
	s.Counts.add(&o.Counts)
}

func (s *sum) String() string {
	b, _ := json.Marshal(s) // it has numbers only
	return string(b)
}
