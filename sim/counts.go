package sim

import (
	"encoding/json"
	"reflect"
)

// Counts say what a run did: one that did nothing proves nothing. TestSeeds requires that its runs together have come to all of them.
type Counts struct {
	Acked, Unknown, Refused   int // client operations
	Started, Delivered, Twice int // calls, those with a 200, and those of timers whose last call was answered so
	Crashes, Pauses           int
	Elections                 int
	Moves, Installed          int // rows settled beyond the first; snapshots taken over from a peer
	Removed                   int // processes that ended because their node was removed
	Snapshots, Reads          int
	Rots, Refusals            int // files damaged at rest; starts refused for that
	Mended                    int // logs restored with what others had
	Taken, Claims, Drains     int // leases of consumers; what these said of them; planned stops
	HungUp                    int // consumers that hung up while their pull waited
	Bulks, Moved              int // bulk changes, and timers that they changed
	Ranked, Spread            int // pairs that waited together; calls in a window
	Expired, Same             int // dead letters; adds answered with the timer that there was
	Rotations, Resealed       int // keys of secrets that came into use, and commands that sealed them anew
	Superseded                int // adds that a later one, or a cancel, ended
	Turns, TurnsRefused       int // changes of delivery, and those refused as timers were leased
	Laden                     int // adds refused as memory was full
	ScenarioCounts
	ClockCounts
	DiskFaultCounts
	ReplicaFaultCounts
}

// add adds what another run did.
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

// never names what was never come to, but for scenarios, disk faults and faults of replicas: for each of these there are runs of its own.
func (c *Counts) never() (names []string) {
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Int && f.Int() == 0 {
			names = append(names, v.Type().Field(i).Name)
		}
	}
	return names
}

// sum is what the runs of a process did.
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
