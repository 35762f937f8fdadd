package wire

import (
	"encoding/binary"
	"math"

	"carillon/timer"
	"carillon/timer/encoding"
)

// maxWireLimit bounds the Limit of a query from another node.
const maxWireLimit = 1 << 16

// Flags of a query.
const (
	queryByEnd = 1 << iota
	queryWithoutPayload
	queryAfter
	queryBytes
	queryShards // all shards are last
	queryWaits
	queryTopics // many topics: which, before the rest
	queryWhole

	queryFlags = 1<<iota - 1
)

// maxQueryTopics bounds the topics that a query names.
const maxQueryTopics = 1 << 14

// AppendQuery encodes a query on some shards, at least one, in ascending order.
func AppendQuery(dst []byte, ids []timer.ShardID, q *timer.Query) []byte {
	flags := encoding.Flag(q.ByEnd, queryByEnd) | encoding.Flag(q.WithoutPayload, queryWithoutPayload) |
		encoding.Flag(q.After != nil, queryAfter) | encoding.Flag(q.Bytes > 0, queryBytes) |
		encoding.Flag(len(ids) > 1, queryShards) | encoding.Flag(q.Waits, queryWaits) |
		encoding.Flag(q.ManyTopics(), queryTopics) | encoding.Flag(q.WholeID, queryWhole)
	dst = binary.AppendUvarint(append(dst, version), uint64(ids[0]))
	dst = binary.AppendUvarint(dst, uint64(q.Topic))
	dst = append(dst, q.States, byte(q.Reason), flags)
	if q.ManyTopics() { // none: all
		topics := q.Topics
		if q.AllTopics {
			topics = nil
		}
		dst = appendTopics(dst, topics)
	}
	dst = encoding.AppendVarints(dst, q.FromMs, q.ToMs)
	dst = binary.AppendUvarint(dst, uint64(min(max(q.Limit, 0), maxWireLimit)))
	dst = encoding.AppendBlock(dst, q.IDPrefix)
	dst = binary.AppendUvarint(dst, uint64(len(q.Labels)))
	for _, label := range q.Labels {
		dst = encoding.AppendBlock(dst, label)
	}
	if q.After != nil {
		dst = appendPlace(dst, *q.After, q.ManyTopics())
	}
	if q.Bytes > 0 {
		dst = binary.AppendUvarint(dst, uint64(min(q.Bytes, answerBytes)))
	}
	if len(ids) > 1 {
		dst = appendIDs(dst, ids)
	}
	return dst
}

// appendPlace writes a place. It has a topic in a query of many.
func appendPlace(dst []byte, k timer.SortKey, topic bool) []byte {
	dst = binary.AppendVarint(dst, k.SortMs)
	dst = encoding.AppendBlock(dst, k.ID)
	dst = binary.AppendUvarint(dst, k.Seq)
	if topic {
		dst = binary.AppendUvarint(dst, uint64(k.Topic))
	}
	return dst
}

func (r *reader) place(topic bool) timer.SortKey {
	k := timer.SortKey{SortMs: r.Varint(), ID: string(r.Block(encoding.MaxID, "place")), Seq: r.Uvarint()}
	if topic {
		k.Topic = timer.TopicID(r.Number(1<<32-1, "topic"))
	}
	return k
}

func appendTopics(dst []byte, topics []timer.TopicID) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(topics)))
	for _, topic := range topics {
		dst = binary.AppendUvarint(dst, uint64(topic))
	}
	return dst
}

func (r *reader) topics(most int) []timer.TopicID {
	topics := make([]timer.TopicID, r.Count(most, 1, "topics"))
	for i := range topics {
		topics[i] = timer.TopicID(r.Number(1<<32-1, "topic"))
	}
	return topics
}

func DecodeQuery(b []byte) ([]timer.ShardID, *timer.Query, error) {
	r := open(b)
	ids, q := r.query()
	if err := r.Close(); err != nil {
		return nil, nil, err
	}
	return ids, q, nil
}

// query reads what AppendQuery has written behind the version.
func (r *reader) query() ([]timer.ShardID, *timer.Query) {
	ids := []timer.ShardID{timer.ShardID(r.Number(1<<32-1, "shard"))}
	q := &timer.Query{Topic: timer.TopicID(r.Number(1<<32-1, "topic"))}
	q.States, q.Reason = r.Byte(), timer.Reason(r.Byte())
	if q.Reason > timer.Refused {
		r.Fail("unknown reason")
	}
	flags := r.Byte()
	if flags&^queryFlags != 0 {
		r.Fail("unknown flags of a query")
	}
	q.ByEnd = flags&queryByEnd != 0
	q.WithoutPayload = flags&queryWithoutPayload != 0
	q.Waits = flags&queryWaits != 0
	q.WholeID = flags&queryWhole != 0
	if flags&queryTopics != 0 {
		if q.Topics = r.topics(maxQueryTopics); len(q.Topics) == 0 {
			q.Topics, q.AllTopics = nil, true
		}
	}
	q.FromMs, q.ToMs = r.Varint(), r.Varint()
	q.Limit = int(r.Number(maxWireLimit, "limit"))
	q.IDPrefix = string(r.Block(encoding.MaxID, "prefix"))
	for n := r.Count(encoding.MaxList, 1, "labels"); n > 0 && r.Fault == ""; n-- {
		q.Labels = append(q.Labels, string(r.Block(encoding.MaxText, "label")))
	}
	if flags&queryAfter != 0 {
		k := r.place(q.ManyTopics())
		q.After = &k
	}
	if flags&queryBytes != 0 {
		q.Bytes = int(r.Number(answerBytes, "bytes"))
	}
	if flags&queryShards != 0 {
		if ids = r.ids(); len(ids) < 2 {
			r.Fail("a list of one shard")
		}
	}
	return ids, q
}

// AppendSlots encodes a range of slots, which stands before a query.
func AppendSlots(dst []byte, slots timer.SlotRange) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(slots.From)), uint64(slots.To))
}

// DecodeSlots decodes the output of AppendSlots, and returns what is behind it.
func DecodeSlots(b []byte) (slots timer.SlotRange, rest []byte, err error) {
	r := reader{Reader: encoding.Reader{Rest: b}}
	slots.From, slots.To = timer.Handle(r.Number(math.MaxUint32, "slot")), timer.Handle(r.Number(math.MaxUint32, "slot"))
	rest, r.Rest = r.Rest, nil
	return slots, rest, r.Close()
}

// maxWireTopics bounds the topics of one request for counts.
const maxWireTopics = 4096

// AppendCountsRequest encodes a request for topics' counts in all shards that the asked node leads.
func AppendCountsRequest(dst []byte, topics []timer.TopicID) []byte {
	return appendTopics(append(dst, version), topics)
}

func DecodeCountsRequest(b []byte) ([]timer.TopicID, error) {
	r := open(b)
	topics := r.topics(maxWireTopics)
	return topics, r.Close()
}

// AppendCounts encodes topics' counts and the shards that they add up, in ascending order. With
// these the asking node checks that each shard was counted once.
func AppendCounts(dst []byte, ids []timer.ShardID, counts []timer.Counts) []byte {
	dst = appendIDs(append(dst, version, faultNone), ids)
	dst = binary.AppendUvarint(dst, uint64(len(counts)))
	for i := range counts {
		for _, n := range countFields(&counts[i]) {
			dst = binary.AppendVarint(dst, *n)
		}
	}
	for i := range counts {
		for cause := firstCauses; cause < len(counts[i].Waiting); cause++ {
			if n := counts[i].Waiting[cause]; n != 0 {
				dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(i)), uint64(cause))
				dst = binary.AppendVarint(dst, n)
			}
		}
	}
	return dst
}

// firstCauses are the causes of waiting that each topic's counts have. Later ones follow all
// topics, where there are some: topic, cause, number.
const firstCauses = int(timer.WaitLeader) + 1

// DecodeCounts decodes the output of AppendCounts or AppendFailure.
func DecodeCounts(b []byte) (ids []timer.ShardID, counts []timer.Counts, err error) {
	r, err := answered(b)
	if err != nil {
		return nil, nil, err
	}
	ids = r.ids()
	counts = make([]timer.Counts, r.Count(maxWireTopics, len(countFields(new(timer.Counts))), "topics"))
	for i := range counts {
		for _, n := range countFields(&counts[i]) {
			*n = r.Varint()
		}
	}
	for len(r.Rest) > 0 && len(counts) > 0 {
		c := &counts[r.Number(uint64(len(counts)-1), "topic")]
		if cause, n := r.Number(1<<8-1, "cause"), r.Varint(); cause < uint64(len(c.Waiting)) {
			c.Waiting[cause] = n
		}
	}
	if err := r.Close(); err != nil {
		return nil, nil, err
	}
	return ids, counts, nil
}

func countFields(c *timer.Counts) []*int64 {
	fields := []*int64{&c.Scheduled, &c.Ready, &c.Leased, &c.Done, &c.Dead, &c.OldestOverdueMs, &c.NoURL}
	for i := range firstCauses {
		fields = append(fields, &c.Waiting[i])
	}
	return fields
}
