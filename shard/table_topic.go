package shard

// topics counts timers by topic and state. Rows are numbered by this replica.
type topics struct {
	rows   []topicRow
	vacant []uint32
	rowOf  map[TopicID]uint32
	totals [Cancelled + 1]int64
}

type topicRow struct {
	id     TopicID
	timers int64 // slots that name this row
	pulled int64 // of those leased: by who pulls
	counts [Cancelled + 1]int64
}

// tombstone is a closed topic.
type tombstone struct {
	topic TopicID
	atMs  int64
}

// retain returns the row of a topic for one more timer.
func (p *topics) retain(id TopicID) uint32 {
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

func (p *topics) count(row uint32, state State, by int64) {
	p.rows[row].counts[state] += by
	p.totals[state] += by
}

// Counts are the timers of one topic. Ready and OldestOverdueMs are a leader's own knowledge and stay 0.
func (t *Table) Counts(topic TopicID) Counts {
	row, ok := t.topics.rowOf[topic]
	if !ok {
		return Counts{}
	}
	return countsOf(&t.topics.rows[row].counts)
}

// Totals are the timers of all topics.
func (t *Table) Totals() Counts { return countsOf(&t.topics.totals) }

func countsOf(n *[Cancelled + 1]int64) Counts {
	return Counts{Scheduled: n[Scheduled], Leased: n[Leased], Done: n[Done], Dead: n[Dead]}
}

// closed says whether adds to a topic are refused.
func (t *Table) closed(topic TopicID) bool {
	_, is := t.tombOf[topic]
	return is
}
