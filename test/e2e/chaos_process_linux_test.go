package e2e

import (
	"syscall"
	"testing"
	"time"
)

var processFaults = []fault{
	{name: "kill -9", try: (*chaosRun).killLeader},
	{name: "stopped for 6 to 16 s", try: (*chaosRun).stopLeader},
	{name: "planned restart", try: (*chaosRun).restartLeader},
}

func (s *chaosRun) killLeader(t *testing.T) []time.Duration {
	victim := s.busiest(t)
	led := s.view(t).ledBy(victim.name)
	killed := crashNow(victim.process(), s.receiver)
	s.v.crashes = append(s.v.crashes, killed)
	took := s.load.probes.takeover(t, led, killed.at, takeoverLimit)
	wait(time.Duration(s.random.IntN(500)) * time.Millisecond)
	s.start(t, victim)
	return took
}

func (s *chaosRun) stopLeader(t *testing.T) []time.Duration {
	victim := s.busiest(t)
	led := s.view(t).ledBy(victim.name)
	resume := time.After(time.Duration(6000+s.random.IntN(10_000)) * time.Millisecond)
	stopped := crash{at: time.Now(), open: s.receiver.open.Load()}
	s.load.probes.avoid.Store(victim, true)
	victim.process().signal(t, syscall.SIGSTOP)
	stopped.gone = time.Now()
	took := s.load.probes.takeover(t, led, stopped.gone, takeoverLimit)
	<-resume
	s.v.resumes = append(s.v.resumes, time.Now())
	victim.process().signal(t, syscall.SIGCONT)
	s.load.probes.avoid.Delete(victim)
	s.v.crashes = append(s.v.crashes, stopped)
	return took
}

func (s *chaosRun) restartLeader(t *testing.T) []time.Duration {
	victim, begin := s.busiest(t), time.Now()
	led := s.view(t).ledBy(victim.name)
	victim.process().stop(t)
	took := s.load.probes.takeover(t, led, begin, takeoverLimit)
	s.start(t, victim)
	return took
}
