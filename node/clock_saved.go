package node

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/cespare/xxhash/v2"

	"carillon/internal/clocks"
	"carillon/internal/vfs"
)

// clockFile keeps how the trusted wall clock stands to the boot clock, so that a process that
// starts while the wall clock is wrong knows it from the one before. It is void after the
// machine has booted again, and may be deleted.
const (
	clockFile         = "clock.json"
	clockSaveInterval = time.Second
	clockSaveOff      = 100 * time.Millisecond
)

// savedClock is the file.
type savedClock struct {
	BootID   string `json:"boot_id"`
	OffsetUs int64  `json:"offset_us"`    // the believed wall clock less the boot clock
	SteadyUs int64  `json:"steady_at_us"` // boot clock of the last step
	Wrong    bool   `json:"wrong"`        // others found a wall clock to be wrong
	WrongUs  int64  `json:"wrong_us"`     // that one, less the boot clock
	Denied   bool   `json:"denied"`       // a majority shared another time than that of OffsetUs
	Sum      string `json:"sum"`
}

func (s *savedClock) sum() string {
	return fmt.Sprintf("%016x", xxhash.Sum64String(fmt.Sprint(s.BootID, " ", s.OffsetUs, " ", s.SteadyUs, " ", s.Wrong, " ", s.WrongUs, " ", s.Denied)))
}

// readSavedClock reads the clock that the last process of this boot of the machine saved; nil: none
// that counts.
func readSavedClock(fsys vfs.FS, dir, bootID string) *clocks.Saved {
	data, err := vfs.ReadFile(fsys, filepath.Join(dir, clockFile), nil, 4096)
	var s savedClock
	if err != nil || bootID == "" || json.Unmarshal(data, &s) != nil || s.BootID != bootID || s.Sum != s.sum() {
		return nil
	}
	return &clocks.Saved{OffsetUs: s.OffsetUs, SteadyAt: time.Duration(s.SteadyUs) * time.Microsecond, Wrong: s.Wrong, WrongUs: s.WrongUs, Denied: s.Denied}
}

// saveClock leaves it to the next process, if it is another than before.
func (p *process) saveClock() {
	now := p.clock.State().Saved
	if now == nil || p.bootID == "" {
		return
	}
	if old := p.clockSaved; old != nil && old.SteadyAt == now.SteadyAt && old.Wrong == now.Wrong && old.Denied == now.Denied && movedBy(old.OffsetUs, now.OffsetUs) < clockSaveOff {
		return
	}
	s := savedClock{BootID: p.bootID, OffsetUs: now.OffsetUs, SteadyUs: now.SteadyAt.Microseconds(), Wrong: now.Wrong, WrongUs: now.WrongUs, Denied: now.Denied}
	s.Sum = s.sum()
	data, err := json.Marshal(&s)
	if err == nil {
		err = vfs.WriteFileAtomic(p.fsys, filepath.Join(p.cfg.DataDir, clockFile), append(data, '\n'))
	}
	if err != nil {
		p.log.Debug("the state of the clocks could not be stored; retrying", "error", err)
		return
	}
	p.clockSaved = now
}

func movedBy(a, b int64) time.Duration { return time.Duration(max(a-b, b-a)) * time.Microsecond }
