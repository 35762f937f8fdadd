package node

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"carillon/internal/clocks"
	"carillon/internal/history"
	"carillon/node/route"
	"carillon/node/task"
	"carillon/ring"
	"carillon/shard/scheduler"
	"carillon/shard/table"
	"carillon/timer"
)

// retentionInterval is how often the topics are asked how long they want their history kept.
const retentionInterval = 5 * time.Second

// pageBytes is where a page of history is full: two fit into an answer between nodes.
const pageBytes = 8 << 20

// historyAdapter connects the shards to the node's history: they report ended timers and ask for
// them. Package history keeps the records, and knows no topics. Where the directory cannot be used,
// nothing is kept.
type historyAdapter struct {
	store  *history.Store // nil: its directory cannot be used
	topics *ring.State
	tasks  task.Env
	log    *slog.Logger
	keepMs atomic.Int64  // 0: not known yet
	looks  chan struct{} // those that look for attempts; a nil one takes none
}

// Bounds of looking for a timer's attempts when the timer is read: a disk that hangs must not
// hold up a read that memory can answer.
const (
	lookIn      = 500 * time.Millisecond
	looksAtOnce = 64
)

// newHistoryAdapter opens the history. Its loss does not keep the node from firing timers.
func newHistoryAdapter(p *process, topics *ring.State) *historyAdapter {
	h := &historyAdapter{topics: topics, tasks: p.tasks, log: p.log, looks: make(chan struct{}, looksAtOnce)}
	store, err := history.Open(history.Config{
		FS: p.fsys, Dir: filepath.Join(p.cfg.DataDir, "history"), Bytes: p.cfg.HistoryBytes, NowMs: p.timers.WallMs,
		Sure: func() bool { return p.timers.Look().Trust == clocks.Sure }, KeepMs: h.keepMs.Load, Logger: p.log,
	})
	if err != nil {
		p.log.Error("the history cannot be opened; the node continues without it", "error", err)
		return h
	}
	h.store = store
	return h
}

// run writes the history until the context ends, and closes it.
func (h *historyAdapter) run(ctx context.Context) {
	if h.store == nil {
		return
	}
	var work group
	work.Go(func() { _ = h.store.Run(ctx) })
	task.Every(ctx, h.tasks, retentionInterval, h.ask)
	work.Wait()
}

// tidy drops by now what is past its retention.
func (h *historyAdapter) tidy() {
	if h.store != nil {
		h.ask()
		h.store.Maintain()
	}
}

// ask takes from the topics how long to keep their entries.
func (h *historyAdapter) ask() {
	longest, any := h.topics.LongestHistory()
	if !any {
		longest = timer.DefaultPolicy().HistoryMs
	}
	h.keepMs.Store(max(longest, 1))
}

// Record implements events.History.
func (h *historyAdapter) Record(id timer.ShardID, index uint64, events []table.HistoryEvent) {
	if h.store == nil {
		return
	}
	var room [16]history.Event
	list := room[:0]
	topic, wanted := timer.TopicID(0), true
	for i := range events {
		e := &events[i]
		if e.Topic != topic {
			t, known := h.topics.Topic(e.Topic)
			topic, wanted = e.Topic, !known || t.Policy.HistoryMs > 0
		}
		if !wanted {
			continue
		}
		if len(list) == cap(list) {
			h.store.Record(list)
			list = list[:0]
		}
		list = append(list, history.Event{
			Shard: uint32(id), Index: index, Item: e.Item, Topic: uint32(e.Topic), Seq: e.Seq, State: uint8(e.State), EndMs: e.EndMs, ID: e.ID, Body: e.Body,
		})
	}
	if len(list) > 0 {
		h.store.Record(list)
	}
}

// List implements route.LocalHistory: it answers a query from this node's files.
func (h *historyAdapter) List(q *timer.HistoryQuery) (page []*timer.HistoryEntry, more bool, err error) {
	if h.store == nil {
		return nil, false, nil
	}
	events, more, err := h.store.List(fileQuery(q))
	if err != nil {
		h.log.Error("the history could not be read", "error", err)
		return nil, false, timer.ErrUnknown
	}
	bytes := 0
	for i := range events {
		e, err := table.DecodeHistoryEnd(events[i].Body)
		if err != nil {
			h.log.Error("a record of the history cannot be read; it is skipped", "shard", events[i].Shard, "entry", events[i].Index, "error", err)
			continue
		}
		if q.Content != 0 && e.Content != q.Content {
			continue
		}
		e.Key = keyOf(&events[i])
		if e.Timer.Origin == 0 {
			e.Timer.Origin = e.Key.Shard // where a timer of its id is by now does not matter
		}
		if e.Missing() > 0 {
			h.join(e, &events[i])
		}
		if page = append(page, e); q.Content != 0 {
			return page, false, nil
		}
		for i := range e.Attempts { // what receivers answered can be more than the ends
			bytes += e.Attempts[i].Size()
		}
		if bytes >= pageBytes && i < len(events)-1 {
			return page, true, nil
		}
	}
	return page, more && len(page) > 0, nil
}

// join puts an entry's earlier attempts into it; some may be gone. Those of before its shard was
// divided are in the parent's history.
func (h *historyAdapter) join(e *timer.HistoryEntry, of *history.Event) {
	events, err := h.store.Attempts(of.Shard, of.Seq, of.Index, of.Item)
	first := h.topics.Shards().First
	for from := route.Ancestor(timer.ShardID(of.Shard), first); from != 0 && err == nil; from = route.Ancestor(from, first) {
		var before []history.Event
		if before, err = h.store.Attempts(uint32(from), of.Seq, math.MaxUint64, math.MaxUint32); err == nil {
			// The parent has given the same number again since, but not to a timer of that id.
			before = slices.DeleteFunc(before, func(b history.Event) bool { return b.Topic != of.Topic || !bytes.Equal(b.ID, of.ID) })
			events = append(before, events...)
		}
	}
	if err != nil {
		h.log.Error("the history could not be read", "error", err)
		return
	}
	earlier := make([]timer.HistoryAttempt, 0, len(events))
	for i := range events {
		if a, err := table.DecodeHistoryAttempt(events[i].Body); err == nil {
			earlier = append(earlier, a)
		}
	}
	e.Join(earlier)
}

// Attempts implements route.LocalHistory. It does not wait for a disk that hangs.
func (h *historyAdapter) Attempts(id timer.ShardID, topic timer.TopicID, timerID string, s *scheduler.Standing) []timer.HistoryAttempt {
	if h.store == nil {
		return nil
	}
	standing := *s
	return h.soon(func() []timer.HistoryAttempt { return h.attempts(id, topic, timerID, &standing) })
}

// soon is the result of look; nil when it does not within lookIn, or when too many look already.
func (h *historyAdapter) soon(look func() []timer.HistoryAttempt) []timer.HistoryAttempt {
	select {
	case h.looks <- struct{}{}:
	default:
		return nil
	}
	found := make(chan []timer.HistoryAttempt, 1)
	go func() {
		found <- look()
		<-h.looks
	}()
	late := time.NewTimer(lookIn)
	defer late.Stop()
	select {
	case list := <-found:
		return list
	case <-late.C:
		return nil
	}
}

// lineage is a shard and those that it was divided from.
func (h *historyAdapter) lineage(id timer.ShardID) (ids []timer.ShardID) {
	for first := h.topics.Shards().First; id != 0; id = route.Ancestor(id, first) {
		ids = append(ids, id)
	}
	return ids
}

// attempts reads the files. The attempts of a pending timer are found by its number; those of one
// that has ended are stored with its end, which is not written if its topic keeps no history.
func (h *historyAdapter) attempts(id timer.ShardID, topic timer.TopicID, timerID string, s *scheduler.Standing) []timer.HistoryAttempt {
	if s.State.Over() {
		list, _, err := h.List(&timer.HistoryQuery{
			Topic: topic, Shards: h.lineage(id), ID: timerID, States: 1 << s.State, Newest: true, Limit: 1,
		})
		if err != nil || len(list) == 0 || list[0].Timer.Seq != s.Seq {
			return nil
		}
		return list[0].Attempts
	}
	ended := s.Attempts
	if s.State == timer.Leased {
		ended-- // the one that runs
	}
	e := &timer.HistoryEntry{Timer: &timer.Timer{Attempts: ended}}
	h.join(e, &history.Event{Shard: uint32(id), Topic: uint32(topic), ID: []byte(timerID), Seq: s.Seq, Index: math.MaxUint64, Item: math.MaxUint32})
	return e.Attempts
}

func keyOf(e *history.Event) timer.HistoryKey {
	return timer.HistoryKey{EndMs: e.EndMs, Index: e.Index, Shard: timer.ShardID(e.Shard), Item: e.Item}
}

func fileQuery(q *timer.HistoryQuery) *history.Query {
	wanted := map[uint32]bool{}
	for _, id := range q.Shards {
		wanted[uint32(id)] = true
	}
	f := &history.Query{
		Topic: uint32(q.Topic), Shards: func(shard uint32) bool { return wanted[shard] }, States: q.States, FromMs: q.FromMs, ToMs: q.ToMs,
		Newest: q.Newest, Limit: q.Limit, Bytes: pageBytes,
	}
	if q.ID != "" {
		f.ID = []byte(q.ID)
	}
	if q.Content != 0 {
		f.Limit = timer.ContentDepth
	}
	if k := q.After; k != nil {
		f.After = &history.Key{EndMs: k.EndMs, Index: k.Index, Shard: uint32(k.Shard), Item: k.Item}
	}
	return f
}
