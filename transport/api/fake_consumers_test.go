package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"carillon/timer"
	"carillon/transport/api/backend"
)

// fakeConsumers is how the fake engine answers consumers. It keeps the requests; receipts are
// "topic/id/attempt".
type fakeConsumers struct {
	pulls  []backend.Pull
	claims []backend.LeaseUpdate
	ready  chan struct{} // closed or sent to when an empty-handed wait should look again
	gone   chan struct{} // sent to when it should end, since its topic is gone
}

func (e *fakeEngine) Pull(ctx context.Context, topic timer.TopicID, p backend.Pull) ([]backend.Pulled, error) {
	e.mu.Lock()
	e.pulls = append(e.pulls, p)
	e.mu.Unlock()
	for {
		got, err := e.pullNow(topic, p)
		if len(got) > 0 || err != nil || p.Wait == 0 {
			return got, err
		}
		select {
		case <-e.ready:
		case <-e.gone:
			return nil, timer.ErrNoTopic
		case <-ctx.Done():
			return nil, nil
		}
	}
}

func (e *fakeEngine) pullNow(topic timer.TopicID, p backend.Pull) (out []backend.Pulled, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []*fakeTimer
	for k, t := range e.timers {
		if k.topic == topic && t.State == timer.Scheduled && t.NextMs <= e.nowMs() {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *fakeTimer) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, t := range list[:min(len(list), p.Max)] {
		t.State = timer.Leased
		t.Attempts++
		t.Fence++
		c := t.Timer
		out = append(out, backend.Pulled{Timer: &c, Receipt: fmt.Sprintf("%s/%s/%d", e.nameOf(topic), t.ID, t.Attempts), UntilMs: e.nowMs() + max(p.LeaseMs, 1000)})
	}
	return out, e.err
}

func (e *fakeEngine) UpdateLease(_ context.Context, c backend.LeaseUpdate) ([]bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.Receipts = slices.Clone(c.Receipts)
	for i := range c.Receipts {
		c.Receipts[i] = strings.Clone(c.Receipts[i])
	}
	c.Reason = strings.Clone(c.Reason)
	e.claims = append(e.claims, c)
	held := make([]bool, len(c.Receipts))
	for i, r := range c.Receipts {
		parts := strings.Split(r, "/")
		if len(parts) != 3 || e.topics[parts[0]] == nil || !c.Sees(parts[0]) {
			continue
		}
		t := e.timers[timerKey{e.topics[parts[0]].ID, parts[1]}]
		held[i] = t != nil && t.State == timer.Leased && fmt.Sprint(t.Attempts) == parts[2]
	}
	return held, e.err
}

func (e *fakeEngine) Return(_ context.Context, topic timer.TopicID, leases []backend.Pulled) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range leases {
		t := e.timers[timerKey{topic, leases[i].Timer.ID}]
		t.State = timer.Scheduled
		t.Attempts--
	}
}
