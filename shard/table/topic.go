package table

import "carillon/timer"

// CanaryTopic is a topic for the probe timers of each shard's leader. Clients cannot reach it, the
// history does not record it, and forecasts do not count it.
const CanaryTopic timer.TopicID = 1<<32 - 1

// topics counts timers by topic and state. Row numbers are local to this replica.
type topics struct {
	rows   []topicRow
	vacant []uint32
	rowOf  map[timer.TopicID]uint32
	totals [timer.Cancelled + 1]int64
}

type topicRow struct {
	id     timer.TopicID
	timers int64 // slots that refer to this row
	pulled int64 // leased timers that a consumer pulled
	noURL  int64 // scheduled or leased timers without a callback URL of their own
	counts [timer.Cancelled + 1]int64
	// see Table.WheelWaits
	wheelWaits WheelWaits
}

// tombstone is a closed topic.
type tombstone struct {
	topic timer.TopicID
	atMs  int64
}

// retain returns the row of a topic and adds a timer to it.
func (p *topics) retain(id timer.TopicID) uint32 {
	row, ok := p.rowOf[id]
	if !ok {
		if n := len(p.vacant); n > 0 {
			row = p.vacant[n-1]
			p.vacant = p.vacant[:n-1]
		} else {
			row = uint32(len(p.rows))
			p.rows = append(p.rows, topicRow{})
		}
		p.rows[row] = topicRow{id: id}
		p.rowOf[id] = row
	}
	p.rows[row].timers++
	return row
}

func (p *topics) release(row uint32) {
	r := &p.rows[row]
	if r.timers--; r.timers == 0 {
		delete(p.rowOf, r.id)
		*r = topicRow{}
		p.vacant = append(p.vacant, row)
	}
}

func (p *topics) count(row uint32, state timer.State, by int64) {
	p.rows[row].counts[state] += by
	p.totals[state] += by
}

// Counts returns the counts of one topic. Ready and OldestOverdueMs are known only to a leader and
// stay 0.
func (t *Table) Counts(topic timer.TopicID) timer.Counts {
	row, ok := t.topics.rowOf[topic]
	if !ok {
		return timer.Counts{}
	}
	c := countsOf(&t.topics.rows[row].counts)
	c.NoURL = t.topics.rows[row].noURL
	return c
}

// Totals returns the counts of all topics.
func (t *Table) Totals() timer.Counts { return countsOf(&t.topics.totals) }

func countsOf(n *[timer.Cancelled + 1]int64) timer.Counts {
	return timer.Counts{Scheduled: n[timer.Scheduled], Leased: n[timer.Leased], Done: n[timer.Done], Dead: n[timer.Dead]}
}

// Closed reports whether the topic refuses adds.
func (t *Table) Closed(topic timer.TopicID) bool {
	_, is := t.tombOf[topic]
	return is
}
