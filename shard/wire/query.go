package wire

import (
	"encoding/binary"
	"math"

	"carillon/timer"
	"carillon/timer/encoding"
)

// maxWireLimit bounds the Limit of a query from another node.
const maxWireLimit = 1 << 16

// maxQueryTopics bounds the topics that a query names.
const maxQueryTopics = 1 << 14

// AppendQuery encodes a query on some shards, at least one, in ascending order.
func AppendQuery(dst []byte, ids []timer.ShardID, q *timer.Query) []byte {
	c := encoding.Codec{Out: append(dst, version)}
	query(&c, &ids, q)
	return c.Out
}

func DecodeQuery(b []byte) (ids []timer.ShardID, q *timer.Query, err error) {
	c, q := open(b), new(timer.Query)
	query(&c, &ids, q)
	if err := c.Close(); err != nil {
		return nil, nil, err
	}
	return ids, q, nil
}

// query is what follows the version.
func query(c *encoding.Codec, ids *[]timer.ShardID, q *timer.Query) {
	if c.Reads {
		*ids = make([]timer.ShardID, 1)
	}
	encoding.Uint32(c, &(*ids)[0], "shard")
	encoding.Uint32(c, &q.Topic, "topic")
	encoding.Octet(c, &q.States)
	if encoding.Octet(c, &q.Reason); q.Reason > timer.Refused {
		c.Fail("unknown reason")
	}
	after, bytes, shards, many := q.After != nil, q.Bytes > 0, len(*ids) > 1, q.ManyTopics()
	c.Flags("a query", &q.ByEnd, &q.WithoutPayload, &after, &bytes, &shards, &q.Waits, &many, &q.WholeID)
	if many { // none: all
		list := q.Topics
		if q.AllTopics {
			list = nil
		}
		if topics(c, &list, maxQueryTopics); c.Reads {
			q.Topics, q.AllTopics = list, len(list) == 0
		}
	}
	encoding.Signed(c, &q.FromMs, &q.ToMs)
	encoding.Number(c, &q.Limit, maxWireLimit, "limit")
	encoding.Text(c, &q.IDPrefix, encoding.MaxID, "prefix")
	encoding.List(c, &q.Labels, encoding.MaxList, 1, "labels", func(c *encoding.Codec, label *string) {
		encoding.Text(c, label, encoding.MaxText, "label")
	})
	if after {
		place(c, encoding.Made(c, &q.After), many)
	}
	if bytes {
		encoding.Number(c, &q.Bytes, answerBytes, "bytes")
	}
	if shards { // all of them
		if shardIDs(c, ids); len(*ids) < 2 {
			c.Fail("a list of one shard")
		}
	}
}

// place has a topic in a query of many.
func place(c *encoding.Codec, k *timer.SortKey, topic bool) {
	encoding.Signed(c, &k.SortMs)
	encoding.Text(c, &k.ID, encoding.MaxID, "place")
	c.Uvarints(&k.Seq)
	if topic {
		encoding.Uint32(c, &k.Topic, "topic")
	}
}

func topics(c *encoding.Codec, list *[]timer.TopicID, most int) {
	encoding.List(c, list, most, 1, "topics", func(c *encoding.Codec, id *timer.TopicID) { encoding.Uint32(c, id, "topic") })
}

// AppendSlots encodes a range of slots, which stands before a query.
func AppendSlots(dst []byte, slots timer.SlotRange) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(slots.From)), uint64(slots.To))
}

// DecodeSlots decodes the output of AppendSlots, and returns what is behind it.
func DecodeSlots(b []byte) (slots timer.SlotRange, rest []byte, err error) {
	r := encoding.Reader{Rest: b}
	slots.From, slots.To = timer.Handle(r.Number(math.MaxUint32, "slot")), timer.Handle(r.Number(math.MaxUint32, "slot"))
	rest, r.Rest = r.Rest, nil
	return slots, rest, r.Close()
}

// maxWireTopics bounds the topics of one request for counts.
const maxWireTopics = 4096

// AppendCountsRequest encodes a request for topics' counts in all shards that the asked node leads.
func AppendCountsRequest(dst []byte, topics []timer.TopicID) []byte {
	return request(dst, &topics, countsRequest)
}

func DecodeCountsRequest(b []byte) ([]timer.TopicID, error) { return asked(b, countsRequest) }

func countsRequest(c *encoding.Codec, list *[]timer.TopicID) { topics(c, list, maxWireTopics) }

// AppendCounts encodes topics' counts and the shards that they add up, in ascending order. With
// these the asking node checks that each shard was counted once.
func AppendCounts(dst []byte, ids []timer.ShardID, counts []timer.Counts) []byte {
	c := encoding.Codec{Out: append(dst, version, faultNone)}
	firstCounts(&c, &ids, &counts)
	for i := range counts {
		for cause := firstCauses; cause < len(counts[i].Waiting); cause++ {
			if n := counts[i].Waiting[cause]; n != 0 {
				c.Out = binary.AppendVarint(encoding.AppendUvarints(c.Out, uint64(i), uint64(cause)), n)
			}
		}
	}
	return c.Out
}

// firstCauses are the causes of waiting that each topic's counts have. Later ones follow all
// topics, where there are some: topic, cause, number.
const firstCauses = int(timer.WaitLeader) + 1

// DecodeCounts decodes the output of AppendCounts or AppendFailure.
func DecodeCounts(b []byte) (ids []timer.ShardID, counts []timer.Counts, err error) {
	c, err := openAnswer(b)
	if err != nil {
		return nil, nil, err
	}
	firstCounts(&c, &ids, &counts)
	for len(c.Rest) > 0 && len(counts) > 0 {
		of := &counts[c.Number(uint64(len(counts)-1), "topic")]
		if cause, n := c.Number(1<<8-1, "cause"), c.Varint(); cause < uint64(len(of.Waiting)) {
			of.Waiting[cause] = n
		}
	}
	if err := c.Close(); err != nil {
		return nil, nil, err
	}
	return ids, counts, nil
}

func firstCounts(c *encoding.Codec, ids *[]timer.ShardID, counts *[]timer.Counts) {
	shardIDs(c, ids)
	encoding.List(c, counts, maxWireTopics, 7+firstCauses, "topics", func(c *encoding.Codec, n *timer.Counts) {
		encoding.Signed(c, &n.Scheduled, &n.Ready, &n.Leased, &n.Done, &n.Dead, &n.OldestOverdueMs, &n.NoURL)
		for i := range firstCauses {
			encoding.Signed(c, &n.Waiting[i])
		}
	})
}
