package node

import (
	"context"
	"errors"
	"time"

	"carillon/internal/tracing"
	"carillon/node/calls"
	"carillon/shard"
	"carillon/timer"
	"carillon/transport/api/backend"
)

// Pull implements backend.Consumers.
func (c *core) Pull(ctx context.Context, topic timer.TopicID, p backend.Pull) ([]backend.Pulled, error) {
	secret := c.clusterSecret()
	if secret == nil {
		return nil, timer.ErrRecovering
	}
	taken, err := c.router.Pull(ctx, topic, p.Max, p.LeaseMs, p.Wait)
	if err != nil {
		return nil, err
	}
	out, now := make([]backend.Pulled, len(taken)), time.Now()
	for i := range taken {
		t := &taken[i]
		r := calls.Receipt{Shard: t.Shard, Place: c.router.PlaceOf(topic, t.Timer.ID), Topic: topic, Handle: t.Handle, Seq: t.Timer.Seq, Fence: t.Timer.Fence}
		r.Begin(t.Timer, now, c.p.tracer)
		out[i] = backend.Pulled{Timer: t.Timer, Receipt: r.Seal(secret), UntilMs: t.UntilMs}
	}
	return out, nil
}

func (c *core) Return(ctx context.Context, topic timer.TopicID, leases []backend.Pulled) {
	secret := c.clusterSecret()
	taken := make([]timer.PulledTimer, 0, len(leases))
	for i := range leases {
		if r, ok := calls.OpenReceipt(secret, leases[i].Receipt); ok {
			taken = append(taken, timer.PulledTimer{Shard: r.Shard, Handle: r.Handle, Timer: leases[i].Timer})
		}
	}
	c.router.GiveBack(ctx, topic, taken)
}

// updated is a lease that a consumer updates: the at-th that it named.
type updated struct {
	at      int
	receipt calls.Receipt
	topic   string
}

func (c *core) UpdateLease(ctx context.Context, claim backend.LeaseUpdate) ([]bool, error) {
	secret := c.clusterSecret()
	if secret == nil {
		return nil, timer.ErrRecovering
	}
	shards, _ := c.member.Shards()
	held := make([]bool, len(claim.Receipts))
	var ops []timer.Op
	var of []updated
	for i, text := range claim.Receipts {
		r, ok := calls.OpenReceipt(secret, text)
		if ok && r.Place != 0 { // its shard may be one that this node has yet to learn of
			r.Shard = timer.ShardID(1 + (r.Place-1)%uint64(shards))
		}
		if !ok || r.Shard == shard.Meta || int(r.Shard) > shards {
			continue
		}
		topic, err := c.topics.ByID(ctx, r.Topic)
		if errors.Is(err, timer.ErrNoTopic) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !claim.Sees(topic.Name) {
			continue
		}
		ops = append(ops, timer.Op{Shard: r.Shard, Place: r.Place, Brief: true, Command: &timer.Command{Kind: claim.Kind, Topic: r.Topic, Claim: &timer.LeaseUpdate{
			Handle: r.Handle, Seq: r.Seq, Fence: r.Fence,
			LeaseMs: claim.LeaseMs, DelayMs: claim.DelayMs, HasDelay: claim.HasDelay, Reason: claim.Reason,
		}}})
		of = append(of, updated{i, r, topic.Name})
	}
	if len(ops) == 0 {
		return held, nil
	}
	c.router.DoAll(ctx, ops)
	return held, markHeld(held, ops, of, time.Now(), c.p.tracer)
}

// markHeld notes which leases were held. Of several errors it returns one after which a change may
// have been made, if there is such.
func markHeld(held []bool, ops []timer.Op, of []updated, now time.Time, t *tracing.Tracer) (failed error) {
	for k := range ops {
		if err := ops[k].Err; err != nil {
			if failed == nil || errors.Is(failed, timer.ErrNoLeader) {
				failed = err
			}
			continue
		}
		u := &of[k]
		held[u.at] = ops[k].Result.Code == timer.OK
		u.receipt.End(u.topic, ops[k].Command.Kind, held[u.at], now, t)
	}
	return failed
}
