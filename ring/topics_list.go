package ring

import (
	"cmp"
	"slices"

	"carillon/timer"
)

// topicPage is how many topics a page of a topicList has at most.
const topicPage = 256

// topicList is the topics in order of id. A change makes a new list, which shares all pages with
// the old one but the page that it is in. So the holder of a list walks the topics as they were, in
// pieces, while commands go on being applied.
//
// Invariant: no page is empty; ids rise within a page and from page to page.
type topicList [][]*timer.Topic

// newTopicList makes the list of topics that are in order of id.
func newTopicList(topics []*timer.Topic) topicList {
	return slices.Collect(slices.Chunk(topics, topicPage))
}

// find is where a topic is, or would be put.
func (l topicList) find(id timer.TopicID) (page, at int, ok bool) {
	page, ok = slices.BinarySearchFunc(l, id, func(p []*timer.Topic, id timer.TopicID) int { return cmp.Compare(p[0].ID, id) })
	if ok {
		return page, 0, true
	}
	if page == 0 {
		return 0, 0, false
	}
	page--
	at, ok = slices.BinarySearchFunc(l[page], id, func(t *timer.Topic, id timer.TopicID) int { return cmp.Compare(t.ID, id) })
	return page, at, ok
}

// with is the list with a topic, in the place of the one that has its id, if there is one.
func (l topicList) with(t *timer.Topic) topicList {
	page, at, ok := l.find(t.ID)
	out := slices.Clone(l)
	switch {
	case len(l) == 0:
		return topicList{{t}}
	case ok:
		out[page] = slices.Clone(l[page])
		out[page][at] = t
	case len(l[page]) < topicPage:
		out[page] = slices.Insert(slices.Clone(l[page]), at, t)
	case at == topicPage: // ids rise, so most are put behind all others
		out = slices.Insert(out, page+1, []*timer.Topic{t})
	default:
		half := topicPage / 2
		out[page] = slices.Clone(l[page][:half])
		out = slices.Insert(out, page+1, slices.Clone(l[page][half:]))
		return out.with(t)
	}
	return out
}

// without is the list without a topic.
func (l topicList) without(id timer.TopicID) topicList {
	page, at, ok := l.find(id)
	if !ok {
		return l
	}
	out := slices.Clone(l)
	if len(l[page]) == 1 {
		return slices.Delete(out, page, page+1)
	}
	out[page] = slices.Delete(slices.Clone(l[page]), at, at+1)
	return out
}

// topicWalk goes through a list in pieces.
type topicWalk struct {
	list     topicList
	page, at int
}

// next is the next topic; nil at the end.
func (w *topicWalk) next() *timer.Topic {
	if w.page == len(w.list) {
		return nil
	}
	t := w.list[w.page][w.at]
	if w.at++; w.at == len(w.list[w.page]) {
		w.page, w.at = w.page+1, 0
	}
	return t
}
