package loadtest

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"time"
)

// clockTick is the unit of /proc/stat on Linux.
const clockTick = 10 * time.Millisecond

// cpuSample is the CPU used up to a moment, by us and by the whole machine.
type cpuSample struct {
	at          time.Time
	own         time.Duration
	busy, total time.Duration // of the machine; 0 where it is not known
}

func sampleCPU() cpuSample {
	s := cpuSample{at: time.Now(), own: processCPU()}
	if text, err := os.ReadFile("/proc/stat"); err == nil {
		s.busy, s.total = machineCPU(text)
	}
	return s
}

// machineCPU reads the first line of /proc/stat: "cpu user nice system idle
// iowait irq softirq steal …".
func machineCPU(stat []byte) (busy, total time.Duration) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return 0, 0
	}
	for i, field := range fields[1:9] {
		ticks, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, 0
		}
		total += time.Duration(ticks) * clockTick
		if i != 3 && i != 4 { // idle, iowait
			busy += time.Duration(ticks) * clockTick
		}
	}
	return busy, total
}

// cpuUse compares two samples.
type cpuUse struct {
	cores      float64 // that we kept busy on average
	bottleneck bool
}

// Above these shares the tester was the bottleneck: of all cores that Go may
// use, or, on a machine with nothing left idle, of what the machine did.
const (
	ownShareLimit     = 0.85
	machineBusyLimit  = 0.95
	machineShareLimit = 0.6
)

func useBetween(a, b cpuSample) cpuUse {
	wall := b.at.Sub(a.at)
	if wall <= 0 {
		return cpuUse{}
	}
	own := b.own - a.own
	use := cpuUse{cores: own.Seconds() / wall.Seconds()}
	use.bottleneck = use.cores > ownShareLimit*float64(runtime.GOMAXPROCS(0))
	busy, total := b.busy-a.busy, b.total-a.total
	if total > 0 && busy > 0 && float64(busy) > machineBusyLimit*float64(total) {
		use.bottleneck = use.bottleneck || float64(own) > machineShareLimit*float64(busy)
	}
	return use
}
