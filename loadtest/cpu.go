package loadtest

import (
	"bytes"
	"os"
	"path/filepath"
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
	// That our threads were ready and had no processor; 0 where it is not known.
	waited time.Duration
}

func sampleCPU() cpuSample {
	s := cpuSample{at: time.Now(), own: processCPU()}
	if text, err := os.ReadFile("/proc/stat"); err == nil {
		s.busy, s.total = machineCPU(text)
	}
	s.waited = processorWait("/proc/self/task")
	return s
}

// processorWait adds up how long the threads of a process have waited for a processor: the second
// number of each one's schedstat, ns.
func processorWait(tasks string) (sum time.Duration) {
	threads, err := os.ReadDir(tasks)
	if err != nil {
		return 0
	}
	for _, thread := range threads {
		text, err := os.ReadFile(filepath.Join(tasks, thread.Name(), "schedstat"))
		if err != nil {
			continue // it has ended
		}
		if fields := bytes.Fields(text); len(fields) >= 2 {
			if ns, err := strconv.ParseInt(string(fields[1]), 10, 64); err == nil {
				sum += time.Duration(ns)
			}
		}
	}
	return sum
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
