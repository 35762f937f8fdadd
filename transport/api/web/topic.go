package web

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"carillon/timer"
)

// TopicTries bounds how often a topic is looked up again, waiting 2, 4, 8 … ms: half a second in
// all.
const TopicTries = 8

// FindTopic looks the topic up, and makes it when create is set and it is not there. Without create
// one that is being deleted may be gone by now: the others are asked.
func (rq *Request) FindTopic(create bool) (*timer.Topic, *Problem) {
	if t, ok := rq.Core.Topics.Here(rq.Topic); ok && (create || !t.Closing) {
		return t, nil
	}
	if create && !rq.KnownTopicsOnly {
		if rq.DryRun {
			return rq.topicToBe()
		}
		return rq.makeTopic()
	}
	return rq.LateTopic(noTopic())
}

// LateTopic finds a topic that this node's copy lacks or shows as being deleted. unknown is the
// answer where there is none.
func (rq *Request) LateTopic(unknown *Problem) (*timer.Topic, *Problem) {
	t, err := rq.Core.Topics.Named(rq.Base, rq.Topic)
	switch {
	case errors.Is(err, timer.ErrNoTopic):
		return nil, unknown
	case err != nil:
		return nil, Fault(err)
	}
	return t, nil
}

// OnTopic runs f on the topic that find gives, again as long as it finds the topic closing, where
// it may be made again, or of a former life, within bounds.
func (rq *Request) OnTopic(create bool, find func() (*timer.Topic, *Problem), f func(*timer.Topic) (stale bool, p *Problem)) *Problem {
	for try := range TopicTries {
		t, p := find()
		if p != nil {
			return p
		}
		if !t.Closing || !create {
			stale, p := f(t)
			if !stale {
				return p
			}
		}
		if !rq.Sleep(2 * time.Millisecond << try) {
			break
		}
	}
	return Fail(503, Unavailable, "the topic is being deleted; nothing was changed")
}

// Bounds of the cost of one page of topics.
const (
	topicsAtOnce = 512     // names that are looked at in one go
	matchesMost  = 1 << 19 // patterns that are held against names: tens of milliseconds
)

// TopicsSeen is a page of the topics behind a name: those that begin so and that the token sees.
// last is where it ends, more whether there is another. The token may not see the last: a page ends
// early where much has been looked at.
func (rq *Request) TopicsSeen(after, prefix string, limit int) (page []*timer.Topic, last string, more bool) {
	after = max(after, justBefore(prefix))
	for looked := 0; ; {
		var ok bool
		if after, ok = rq.Who.nextSeen(after); !ok {
			return page, after, false
		}
		batch := rq.Core.Topics.List(after, max(topicsAtOnce, limit+1))
		for _, t := range batch {
			if !strings.HasPrefix(t.Name, prefix) {
				return page, after, false // behind all that begin so
			}
			if rq.Who.Sees(t.Name) {
				if len(page) == limit {
					return page, page[limit-1].Name, true
				}
				page = append(page, t)
			}
			after = t.Name
		}
		if len(batch) < max(topicsAtOnce, limit+1) {
			return page, after, false
		}
		if rq.Who != nil {
			looked += len(batch) * len(rq.Who.Topics)
		}
		if looked > matchesMost {
			return page, after, true
		}
	}
}

// TopicCursor is the place behind a name, in the listing of topics that begin with a prefix.
// Clients can read cursors, so a topic that the token does not see is not named: the cursor has its
// number, and a digest, without which nobody finds out where a number is in the order of names.
func (rq *Request) TopicCursor(name, prefix string) (string, error) {
	if rq.Who.Sees(name) {
		return NameCursor(name, prefix), nil
	}
	var id timer.TopicID // none, if it has just been deleted: no place
	if t, here := rq.Core.Topics.Here(name); here {
		id = t.ID
	}
	digest, err := rq.unseen(name)
	if err != nil {
		return "", err
	}
	b := binary.AppendUvarint(binary.AppendUvarint([]byte{cursorUnseen}, uint64(id)), digest)
	return SealCursor(b, xxhash.Sum64String(prefix)), nil
}

// unseen is a number that stands for the name of a topic in a cursor.
func (rq *Request) unseen(name string) (uint64, error) {
	if rq.Digest == nil {
		return 0, nil
	}
	return rq.Digest("unseen topic\x00" + name) // no secret header has a 0
}

// ParseTopicCursor is the name of a TopicCursor. false: it is none, or the topic is gone.
func (rq *Request) ParseTopicCursor(s, prefix string) (string, bool) {
	if name, ok := ParseNameCursor(s, prefix); ok {
		return name, true
	}
	p := OpenCursor(s, cursorUnseen, xxhash.Sum64String(prefix))
	id, digest := p.Uvarint(math.MaxUint32), p.Uvarint(math.MaxUint64)
	if !p.OK || len(p.Rest) != 0 {
		return "", false
	}
	t, err := rq.Core.Topics.ByID(rq.Base, timer.TopicID(id))
	if err != nil {
		return "", false
	}
	want, err := rq.unseen(t.Name)
	return t.Name, err == nil && digest == want
}

// QueryTopic finds the topic that a parameter names; one that is not the token's is not there.
func (rq *Request) QueryTopic(name string) (*timer.Topic, *Problem) {
	if !ValidTopic(name) {
		return nil, Bad(BadName, "query: topic is no name of a topic")
	}
	rq.Topic = name
	if rq.Who != nil && !rq.Who.Sees(name) {
		return nil, rq.Who.NotReached(rq.Topic)
	}
	return rq.FindTopic(false)
}

// topicToBe is the request's topic, or the one that would be made for it: that has no number.
func (rq *Request) topicToBe() (*timer.Topic, *Problem) {
	t, p := rq.LateTopic(nil)
	switch {
	case t != nil || p != nil:
		return t, p
	case rq.Who != nil && !rq.Who.May(ScopeTopics):
		return nil, rq.mayNotMake()
	}
	return rq.NewTopic(), nil
}

// NewTopic is the topic that an add would make, without a number.
func (rq *Request) NewTopic() *timer.Topic {
	return &timer.Topic{Name: rq.Topic, Policy: timer.DefaultPolicy(), AutoCreated: true}
}
