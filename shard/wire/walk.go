package wire

import (
	"carillon/timer"
	"carillon/timer/encoding"
)

// minRef is the minimum length of a Ref: length of the id, number, tag, version, flags, two times.
const minRef = 7

// AppendWalk encodes a step each of some walks, at least one, in ascending order of their shards.
func AppendWalk(dst []byte, steps []timer.Step, q *timer.Query) []byte {
	ids := make([]timer.ShardID, len(steps))
	for i := range steps {
		ids[i] = steps[i].Shard
	}
	c := encoding.Codec{Out: append(dst, version)}
	cursor(&c, &steps[0].At)
	c.Out = AppendQuery(c.Out, ids, q)
	for i := range steps[1:] {
		cursor(&c, &steps[1+i].At)
	}
	return c.Out
}

func DecodeWalk(b []byte) ([]timer.Step, *timer.Query, error) {
	c := open(b)
	var at timer.ScanCursor
	cursor(&c, &at)
	if v := c.Byte(); v != version {
		c.Fail("version of a query")
	}
	var ids []timer.ShardID
	q := new(timer.Query)
	query(&c, &ids, q)
	steps := make([]timer.Step, len(ids))
	for i, id := range ids {
		if i > 0 {
			cursor(&c, &at)
		}
		steps[i] = timer.Step{Shard: id, At: at}
	}
	if err := c.Close(); err != nil {
		return nil, nil, err
	}
	return steps, q, nil
}

// cursor is a place in a walk. In an answer it has more flags.
func cursor(c *encoding.Codec, at *timer.ScanCursor, more ...*bool) {
	c.Flags("a place in a walk", append([]*bool{&at.Begun}, more...)...)
	encoding.Uint32(c, &at.From, "slot")
	encoding.Uint32(c, &at.High, "slot")
	c.Uvarints(&at.Seq)
}

// AppendSteps encodes where each walk is by now, and the timers that its step has found.
func AppendSteps(dst []byte, steps []timer.Step) []byte {
	return answer(dst, &steps, walked)
}

// DecodeSteps decodes the output of AppendSteps or AppendFailure, the answer to these steps, into
// them.
func DecodeSteps(b []byte, steps []timer.Step) error {
	found := make([]timer.Step, len(steps))
	c, err := openAnswer(b)
	if err != nil {
		return err
	}
	walked(&c, &found)
	if err := c.Close(); err != nil {
		return err
	}
	for i := range found {
		found[i].Shard = steps[i].Shard
	}
	copy(steps, found)
	return nil
}

// walked are as many steps as were asked for.
func walked(c *encoding.Codec, steps *[]timer.Step) {
	for i := range *steps {
		s, more := &(*steps)[i], i < len(*steps)-1
		another := more
		cursor(c, &s.At, &s.Refused, &another) // the step was not taken; that of another step follows
		if refs(c, &s.Refs); another != more {
			c.Fail("not as many steps as were asked for")
		}
	}
}

func refs(c *encoding.Codec, list *[]timer.Ref) {
	encoding.List(c, list, timer.MaxScan, minRef, "marks", func(c *encoding.Codec, m *timer.Ref) {
		timerID(c, &m.ID)
		c.Uvarints(&m.Seq)
		encoding.Uint32(c, &m.Tag, "tag")
		encoding.Uint32(c, &m.Version, "version")
		origin := m.Origin != 0
		c.Flags("a mark", &m.Leased, &m.NoURL, &m.Paused, &origin)
		encoding.Signed(c, &m.DueMs, &m.NextMs)
		if origin { // the shard that gave the number
			encoding.Uint32(c, &m.Origin, "origin")
		}
	})
}
