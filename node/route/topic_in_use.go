package route

import (
	"context"

	"carillon/timer"
	"carillon/timer/bulk"
)

// inUse names all that a policy would take away that is needed.
func (t *Topics) inUse(ctx context.Context, old *timer.Topic, p *timer.Policy) (err error) {
	var used timer.InUseError
	if len(p.Secrets) == 0 {
		used.Secrets = len(old.Policy.Secrets)
	}
	if used.Keyed, err = t.readdressed(ctx, old, p); err != nil {
		return err
	}
	if !old.Policy.CallsNobody() && p.CallsNobody() {
		counts, err := t.Counts(ctx, []timer.TopicID{old.ID})
		switch {
		case err != nil:
			return err
		case counts[0].Leased > 0 && p.Pull != old.Policy.Pull && used == (timer.InUseError{}):
			return timer.LeasedError{Leased: counts[0].Leased} // that refuses it anyway, and passes
		}
		used.Timers = counts[0].NoURL
	}
	if used == (timer.InUseError{}) {
		return nil
	}
	return used
}

// readdressed counts the pending timers that a policy with another key leads nobody to; see
// timer.Policy.Readdresses. It is O(slots of the shards) unless the topic has none pending.
func (t *Topics) readdressed(ctx context.Context, old *timer.Topic, p *timer.Policy) (int64, error) {
	if p.Key == old.Policy.Key {
		return 0, nil
	}
	counts, err := t.Counts(ctx, []timer.TopicID{old.ID})
	if err != nil || counts[0].Scheduled+counts[0].Leased == 0 {
		return 0, err
	}
	walk := bulk.Update{Query: timer.Query{Topic: old.ID, States: 1<<timer.Scheduled | 1<<timer.Leased, WithoutPayload: true}}
	walk.Plan = func(m *timer.Ref) (*timer.Command, bulk.Decision) {
		if old.Policy.Readdresses(m.ID, p) {
			return nil, bulk.Leave
		}
		return nil, bulk.Pass
	}
	err = t.Bulk(ctx, &walk)
	return walk.Matched.Load(), err
}
