package api

import (
	"slices"
	"strings"

	"carillon/timer"
)

// Bounds of the cost of one page of topics.
const (
	topicsAtOnce = 512     // names that are looked at in one go
	matchesMost  = 1 << 19 // patterns that are held against names: tens of milliseconds
)

// listTopics answers the topics that the token sees, in order of name. A page ends early where it
// has become large, or where much has been looked at that the token does not see.
func (rq *request) listTopics() *problem {
	limit, p := rq.query.limit()
	if p != nil {
		return p
	}
	counted, p := rq.query.boolean("counts", false)
	if p != nil {
		return p
	}
	prefix, _ := rq.query.value("prefix")
	if len(prefix) > maxTopicBytes || !only(prefix, topicRest) {
		return bad(badName, "query: prefix is nothing that a topic's name can start with")
	}
	after := ""
	if c, given := rq.query.value("cursor"); given {
		var ok bool
		if after, ok = parseNameCursor(c, prefix); !ok {
			return bad(badRequest, "query: cursor is not one of this listing")
		}
	}
	page, after, more := rq.topicsSeen(after, prefix, limit)
	var counts []timer.Counts
	if counted && len(page) > 0 {
		ids := make([]timer.TopicID, len(page))
		for i, t := range page {
			ids[i] = t.ID
		}
		var err error
		if counts, err = rq.core.Timers.Counts(rq.s.base, ids); err != nil {
			return engineFault(err)
		}
	}
	o := object{b: rq.out()}
	o.name("topics")
	list := array{b: o.b}
	for i, t := range page {
		if i > 0 && len(list.b) > rq.s.cfg.Limits.ResponseBytes {
			after, more = page[i-1].Name, true
			break
		}
		list.next()
		if counted {
			list.b = appendTopic(list.b, t, &counts[i])
		} else {
			list.b = appendTopic(list.b, t, nil)
		}
	}
	o.b = list.end()
	if more {
		o.str("next_cursor", nameCursor(after, prefix))
	}
	rq.json(200, o.end())
	return nil
}

// topicsSeen is a page of the topics behind a name: those that begin so and that the token sees.
// last is where it ends, more whether it goes on.
func (rq *request) topicsSeen(after, prefix string, limit int) (page []*timer.Topic, last string, more bool) {
	after = max(after, justBefore(prefix))
	for looked := 0; ; {
		var ok bool
		if after, ok = rq.who.nextSeen(after); !ok {
			return page, after, false
		}
		batch := rq.core.Topics.List(after, max(topicsAtOnce, limit+1))
		for _, t := range batch {
			if !strings.HasPrefix(t.Name, prefix) {
				return page, after, false // behind all that begin so
			}
			if rq.who.sees(t.Name) {
				if len(page) == limit {
					return page, after, true
				}
				page = append(page, t)
			}
			after = t.Name
		}
		if len(batch) < max(topicsAtOnce, limit+1) {
			return page, after, false
		}
		if rq.who != nil {
			looked += len(batch) * len(rq.who.topics)
		}
		if looked > matchesMost {
			return page, after, true
		}
	}
}

// justBefore is behind every name that comes before those that begin so, and before these.
func justBefore(prefix string) string {
	if prefix == "" {
		return ""
	}
	n := len(prefix) - 1
	return prefix[:n] + string(prefix[n]-1) + "\x7f"
}

// nextSeen skips names that the token cannot see, as far as the beginnings of its patterns say: it
// returns a name behind which to look on. false: there are none.
func (p *principal) nextSeen(after string) (string, bool) {
	if p == nil {
		return after, true
	}
	next, found := "", false
	for _, prefix := range p.prefixes {
		switch {
		case prefix == "" || after >= justBefore(prefix) && (after < prefix || strings.HasPrefix(after, prefix)):
			return after, true
		case after < prefix && (!found || prefix < next):
			next, found = prefix, true
		}
	}
	if !found {
		return "", false
	}
	return justBefore(next), true
}

// patternPrefixes are the beginnings of the names that the patterns match.
func patternPrefixes(patterns []string) (prefixes []string) {
	for _, pattern := range patterns {
		prefix, _, _ := strings.Cut(pattern, "*")
		if !slices.Contains(prefixes, prefix) {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}
