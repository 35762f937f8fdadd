package feed

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"carillon/node/task"
	"carillon/transport/api/backend"
)

// stream has the events of all nodes for one listener at this node. It implements
// backend.EventStream.
type stream struct {
	*Feed
	ctx        context.Context
	cancel     context.CancelFunc
	number     uint64
	subscriber *subscriber
	asked      *task.Group
}

// Listen begins to receive the events that a watch selects, from this node and all others. The
// stream must be closed.
func (f *Feed) Listen(ctx context.Context, w *backend.Watch) backend.EventStream {
	s := &stream{Feed: f, number: f.last.Add(1), subscriber: f.open(w), asked: task.NewGroup(f.cfg.Tasks)}
	s.ctx, s.cancel = f.cfg.Tasks.WithTimeout(ctx, task.Forever)
	f.beginGrowth(s.subscriber)
	f.add(s.subscriber)
	s.asked.Go(s.askOthers)
	return s
}

// Next implements backend.EventStream.
func (s *stream) Next(wait time.Duration) (events []backend.Event, missed int64, ok bool) {
	events, missed = s.subscriber.wait(s.ctx, s.cfg.Tasks, wait)
	return events, missed, s.ctx.Err() == nil
}

func (s *stream) Close() {
	s.remove(s.subscriber)
	s.cancel()
	s.asked.Wait()
}

// askOthers asks each of the other nodes, from the moment at which it is up until the stream ends.
func (s *stream) askOthers() {
	asked := map[uint64]bool{}
	for {
		for _, node := range s.cfg.Nodes() {
			if !asked[node] {
				asked[node] = true
				s.asked.Go(func() { s.follow(node) })
			}
		}
		if !s.cfg.Tasks.Sleep(s.ctx, askInterval) {
			return
		}
	}
}

// follow fetches a node's events again and again. While the node does not answer, the listener gets
// one event with the reason.
func (s *stream) follow(node uint64) {
	first, reported := true, false
	for s.ctx.Err() == nil {
		b, err := s.ask(node, first)
		switch {
		case s.ctx.Err() != nil:
			return
		case err == nil && b.Full:
			err = errFull
		case err == nil && b.Lost:
			s.reportGap(node, "the node has restarted, or was not asked for a while: some of its events are missing")
		}
		if err != nil {
			if !reported {
				s.reportGap(node, "no events from this node until it answers: "+err.Error())
			}
			reported = true
			s.cfg.Tasks.Sleep(s.ctx, retryPause)
			continue
		}
		first, reported = false, false
		if b.Missed > 0 {
			s.subscriber.miss(b.Missed)
		}
		if len(b.Events) > 0 {
			s.subscriber.put(b.Events...)
			s.cfg.Tasks.Sleep(s.ctx, pollPause)
		}
	}
}

var errFull = errors.New("it has too many listeners")

// reportGap adds an event by which the listener learns that it does not get all events of a node.
func (s *stream) reportGap(node uint64, why string) {
	s.subscriber.put(backend.Event{Kind: backend.EventMissed, Node: s.cfg.Name(node), AtMs: s.cfg.NowMs(), Error: why})
}

func (s *stream) ask(node uint64, first bool) (*batch, error) {
	body, err := json.Marshal(&ask{Number: s.number, Watch: s.subscriber.watch, First: first, WaitMs: pollWait.Milliseconds()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.cfg.Tasks.WithTimeout(s.ctx, pollTimeout)
	defer cancel()
	answer, err := s.cfg.Call(ctx, node, methodEvents, body)
	if err != nil {
		return nil, err
	}
	b := &batch{}
	return b, json.Unmarshal(answer, b)
}
