package loadtest

import (
	"os"
	"runtime"
	"time"

	"github.com/prometheus/procfs"
)

// cpuSample is the CPU used up to a moment, by us and by the whole machine.
type cpuSample struct {
	at          time.Time
	own         time.Duration
	busy, total time.Duration // of the machine; 0 where it is not known
	// That our threads were ready and had no processor; 0 where it is not known.
	waited time.Duration
}

func sampleCPU() cpuSample { return sampleFrom(procfs.DefaultMountPoint) }

// sampleFrom reads the machine's part from its /proc, where there is one.
func sampleFrom(proc string) cpuSample {
	s := cpuSample{at: time.Now(), own: processCPU()}
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return s
	}
	if stat, err := fs.Stat(); err == nil {
		c := &stat.CPUTotal
		busy := c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
		s.busy, s.total = time.Duration(busy*1e9), time.Duration((busy+c.Idle+c.Iowait)*1e9)
	}
	threads, _ := fs.AllThreads(os.Getpid())
	for _, thread := range threads {
		if stat, err := thread.Schedstat(); err == nil { // else it has ended
			s.waited += time.Duration(stat.WaitingNanoseconds)
		}
	}
	return s
}

// cpuUse compares two samples.
type cpuUse struct {
	cores      float64 // that we kept busy on average
	waited     float64 // that we would have kept busy besides, had there been any for us
	bottleneck bool
}

// Above these shares the tester was the bottleneck: of all cores that Go may use, or, on a machine
// with nothing left idle, of the machine's work.
const (
	ownShareLimit     = 0.85
	machineBusyLimit  = 0.95
	machineShareLimit = 0.6
)

// starvedAbove is the share of waiting above which the report has a warning; below it
// is the tick of a shared machine.
const starvedAbove = 0.05

// starved reports whether the tester was kept from working: its figures are then in part its own
// waiting.
func (u cpuUse) starved() bool { return u.waited > starvedAbove && u.waited > u.cores }

func useBetween(a, b cpuSample) cpuUse {
	wall := b.at.Sub(a.at)
	if wall <= 0 {
		return cpuUse{}
	}
	own := b.own - a.own
	use := cpuUse{cores: own.Seconds() / wall.Seconds(), waited: max(b.waited-a.waited, 0).Seconds() / wall.Seconds()}
	use.bottleneck = use.cores > ownShareLimit*float64(runtime.GOMAXPROCS(0))
	busy, total := b.busy-a.busy, b.total-a.total
	if total > 0 && busy > 0 && float64(busy) > machineBusyLimit*float64(total) {
		use.bottleneck = use.bottleneck || float64(own) > machineShareLimit*float64(busy)
	}
	return use
}
