package scheduler

import (
	"carillon/internal/delivery"
	"carillon/shard/table"
)

// A timer fires in three steps. due_queues.go takes it from the wheel a moment before it is due,
// lease.go proposes its lease, and here its call starts, once the lease is applied and the time has
// come.

// startDue starts every held call that is due.
func (al *activeLeases) startDue() {
	al.startCalls()
	if al.held.len() > 0 && al.held.top().dueMs-al.now.WallMs > notDueAfter {
		al.returnHeld()
	}
	for n := 0; al.held.len() > 0 && (al.held.top().phase != held || al.held.top().dueMs <= al.now.WallMs); n++ {
		if n == startBudget {
			al.env.WakeNext()
			return
		}
		if f := al.held.top(); f.phase == held && !al.proven(f.within()) && !al.outdated(f.within()) {
			al.Doubt()
			return
		}
		switch f := al.held.pop(); {
		case f.phase != held:
		case al.proven(f.within()):
			al.start(f)
		default:
			al.revoke(f)
		}
	}
}

// returnHeld revokes every held lease: the wall clock stepped back, and other timers could not use
// their permits meanwhile.
func (al *activeLeases) returnHeld() {
	for f := range al.held.all() {
		if f.phase == held {
			al.revoke(f)
		}
	}
	al.held = heap[*activeLease]{}
}

func (al *activeLeases) start(f *activeLease) {
	if !al.mayCall(f) {
		return
	}
	job := al.begun(f)
	done := func(a delivery.Outcome) {
		f.attempt = a // which nobody else uses while the call runs
		al.env.Post(func(stopped bool) {
			if !stopped { // else the next process finds the lease in the log
				al.callEnded(f)
			}
		})
	}
	if c, own := f.permit.(canaryDest); own {
		c.start(done)
		return
	}
	al.starting = Delivery{Topic: f.queue.queue.topic, Shard: al.cfg.Shard, Job: job, Own: al.table.Callback(job.Target), Deadline: al.deadline(f)}
	al.cfg.Dispatcher.Start(f.permit, &al.starting, done)
	al.starting = Delivery{}
}

// mayCall reports whether a held lease stands, and its call may begin. Otherwise it ends the lease.
func (al *activeLeases) mayCall(f *activeLease) bool {
	if !al.table.LeasedBy(f.handle, f.seq, f.fence) { // its topic was dropped by force, for example
		al.drop(f)
		return false
	}
	if !al.topics.keeps(f.queue) { // another policy: its permit may be for another receiver
		al.revoke(f)
		return false
	}
	topic := f.queue.queue.topic
	if open, _ := al.windows.inWindow(f.queue.queue); !open || topic == nil || topic.Paused || f.expireMs != 0 && al.now.WallMs > f.expireMs {
		al.revoke(f)
		return false
	}
	return true
}

// begun records that the call of a lease begins, and returns what is to be delivered.
func (al *activeLeases) begun(f *activeLease) table.Job {
	al.unseen.enter(f, started)
	f.called, f.firedMs, f.call = true, al.now.WallMs, nil
	al.series.overlap(f.handle, f.seq, f.fence)
	job := al.table.Job(f.handle)
	f.id = job.ID
	if job.Attempts == 1 && job.Topic != table.CanaryTopic {
		f.fromMs = job.LateFromMs
	}
	return job
}

func (al *activeLeases) drop(f *activeLease) {
	f.permit.Cancel()
	al.over(f)
}

// callEnded handles the end of a call, on the worker. A leader judges it in this turn, or in the
// next one if many end at once.
func (al *activeLeases) callEnded(f *activeLease) {
	if !al.active {
		al.ended(f, &f.attempt)
		return
	}
	al.toJudge = append(al.toJudge, f)
	al.env.Wake()
}

// judgeSteps is what it costs to judge an attempt, in steps of Env.Spent.
const judgeSteps = 2

// judgeEnded judges the attempts whose calls have ended.
func (al *activeLeases) judgeEnded() {
	n := 0
	for over := false; n < min(len(al.toJudge), judgeBudget) && !over; n++ {
		f := al.toJudge[n]
		al.ended(f, &f.attempt)
		over = al.env.Spent(judgeSteps)
	}
	al.toJudge = rest(al.env, al.toJudge, n)
}
