package node

import (
	"testing"

	"carillon/internal/backup"
)

// TestRestoreByAClockThatIsBehind: a clock that is before the backup does not tell which timers the
// lost cluster may have fired since.
func TestRestoreByAClockThatIsBehind(t *testing.T) {
	for _, tt := range []struct {
		overdue Overdue
		behind  int64 // ms
		refused bool
	}{
		{HoldOverdue, 3_600_000, true},
		{DropOverdue, 3_600_000, true},
		{FireOverdue, 3_600_000, false},
		{HoldOverdue, 2_000, false},
		{HoldOverdue, -3_600_000, false},
	} {
		const now = 1_800_000_000_000
		r := restore{cfg: RestoreConfig{Overdue: tt.overdue}, nowMs: now, head: backup.Head{TimeMs: now + tt.behind}}
		if err := r.knowsOverdue(); (err != nil) != tt.refused {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
