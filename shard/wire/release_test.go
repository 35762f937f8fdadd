package wire

import (
	"testing"

	"carillon/internal/feature"
	"carillon/test/testkit"
	"carillon/timer"
	"carillon/timer/encoding"
)

// TestWireOfReleases: this build reads each message between hosts as each release so far wrote it,
// and writes it as the last release did.
func TestWireOfReleases(t *testing.T) {
	messages := map[string]testkit.Message{}
	for name, s := range samples() {
		messages[name] = testkit.Message{Bytes: s.message, Read: s.read}
	}
	testkit.WireOfReleases(t, int(feature.LevelOfBuild), messages)
}

// TestNumbersOfFaults: an error keeps its number. A later one gets a number behind these.
func TestNumbersOfFaults(t *testing.T) {
	for i, err := range []error{
		timer.ErrUnknown, timer.ErrNoLeader, timer.ErrOverloaded, timer.ErrMemory, timer.ErrLowDisk, timer.ErrStopped, timer.ErrRecovering, timer.ErrNoTopic,
		timer.ErrNotEmpty, encoding.ErrFormat,
	} {
		if got := appendFault(nil, err); len(got) != 1 || int(got[0]) != 2+i {
			t.Errorf("%v is sent as %d, it was %d", err, got, 2+i)
		}
	}
	for number, err := range map[byte]error{
		1: timer.NotLeaderError{Leader: 5}, 64: timer.LowDiskError{Node: 5}, 65: timer.LowDiskError{Node: 5, Lack: "the disk is full"}, 66: timer.SnapshotError{Name: "n5"},
	} {
		if got := appendFault(nil, err); got[0] != number {
			t.Errorf("%#v is sent as %d, it was %d", err, got[0], number)
		}
	}
}
