package timer

import "testing"

// counted fails unless the values are numbered from first on.
func counted[T ~uint8](t *testing.T, first T, values ...T) {
	t.Helper()
	for i, v := range values {
		if want := first + T(i); v != want {
			t.Errorf("%T %d of the list has the number %d, it was %d", v, 1+i, v, want)
		}
	}
}

// TestNumbersOfTheFirstRelease: what is a number in logs, snapshots or messages between nodes keeps
// that number. A later value gets one behind these.
func TestNumbersOfTheFirstRelease(t *testing.T) {
	counted(t, 1, Created, Same, OK, Prevented, CancelInFlight, Exists, InFlight, OverFired, OverDead, OverCancelled, NotFound, VersionMismatch, TopicClosed, NotEmpty,
		Skipped, Merged, TooLate, InUse, TooMany, NoCallback, Partly)
	counted(t, 0, NoWait, WaitBackoff, WaitPaused, WaitSpread, WaitKey, WaitConsumer, WaitBreaker, WaitConcurrency, WaitRate, WaitSlots, WaitZone, WaitWindow,
		WaitNoCallback, WaitRefused, WaitLeader, WaitHeld, WaitKeyRate, WaitBatch, WaitOrder, WaitTurn)
	counted(t, 1, Add, Put, Modify, Cancel, Fire, Redrive, Purge, CloseTopic, OpenTopic, Deliver, Pause, Resume)
	counted(t, 0x40, AckLease, NackLease, ExtendLease, ReturnLease)
	counted(t, 1, Scheduled, Leased, Done, Dead, Cancelled)
	counted(t, 0, NoReason, MaxAttempts, Expired, Stopped, Refused)
	counted(t, 0, NoPayload, JSONPayload, BinaryPayload)
	counted(t, 0, MergeReject, MergeKeep, MergeReplace, MergeDebounce, MergeCollect)
	counted(t, 0, CatchUpOne, CatchUpSkip, CatchUpAll)
}
