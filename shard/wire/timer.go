package wire

import (
	"carillon/timer"
	"carillon/timer/encoding"
)

func AppendTimerRequest(dst []byte, id timer.ShardID, topic timer.TopicID, timerID string) []byte {
	return encoding.AppendBlock(encoding.AppendUvarints(append(dst, version), uint64(id), uint64(topic)), timerID)
}

func DecodeTimerRequest(b []byte) (id timer.ShardID, topic timer.TopicID, timerID string, err error) {
	c := open(b)
	id = timer.ShardID(c.Number(1<<32-1, "shard"))
	topic = timer.TopicID(c.Number(1<<32-1, "topic"))
	timerID = string(c.Block(encoding.MaxID, "id"))
	return id, topic, timerID, c.Close()
}

// AppendTimer encodes the answer for one timer; nil: there is none.
func AppendTimer(dst []byte, t *timer.Timer) []byte { return answer(dst, &t, presentTimer) }

// DecodeTimer decodes the output of AppendTimer or AppendFailure.
func DecodeTimer(b []byte) (*timer.Timer, error) { return answered(b, presentTimer) }

func presentTimer(c *encoding.Codec, t **timer.Timer) {
	present := *t != nil
	if c.Flags("presence", &present); present {
		c.Timer(encoding.Made(c, t))
	}
}

// pageFlags are what a page has beyond its timers.
type pageFlags struct {
	more   bool // there is more: where
	shards bool // the shards that answer are last
	waits  bool // and then, why each timer waits
	topic  bool // the place where there is more has a topic
}

func (f *pageFlags) fields(c *encoding.Codec) {
	c.Flags("a page", &f.more, &f.shards, &f.waits, &f.topic)
}

// AppendPage encodes a page of the shards that answer: the first timers that fit.
func AppendPage(dst []byte, ids []timer.ShardID, page timer.Page, q *timer.Query) []byte {
	start := len(dst)
	c := encoding.Codec{Out: append(dst, version, faultNone, 0)}
	for i := range page.Timers {
		if len(c.Out)-start > answerBytes {
			page.Cut(q, i)
			break
		}
		presentTimer(&c, &page.Timers[i])
	}
	c.Out = append(c.Out, 0)
	f := pageFlags{page.More, len(ids) > 0, page.Waits != nil, page.More && page.Next.Topic != 0}
	f.fields(&encoding.Codec{Out: c.Out[:start+2]}) // in their place
	pageEnd(&c, &f, &ids, &page)
	return c.Out
}

// DecodePage decodes the output of AppendPage or AppendFailure. A cause of waiting that this
// release does not know is dropped.
func DecodePage(b []byte) (ids []timer.ShardID, p timer.Page, err error) {
	c, err := openAnswer(b)
	if err != nil {
		return nil, timer.Page{}, err
	}
	var f pageFlags
	f.fields(&c)
	for c.Number(1, "presence") == 1 && c.Fault == "" {
		t := new(timer.Timer)
		c.Timer(t)
		p.Timers = append(p.Timers, t)
	}
	p.More = f.more
	pageEnd(&c, &f, &ids, &p)
	if err := c.Close(); err != nil {
		return nil, timer.Page{}, err
	}
	return ids, p, nil
}

func pageEnd(c *encoding.Codec, f *pageFlags, ids *[]timer.ShardID, p *timer.Page) {
	if f.more {
		place(c, &p.Next, f.topic)
	}
	if f.shards {
		shardIDs(c, ids)
	}
	if f.waits && c.Reads && c.Fault == "" {
		p.Waits = make([]timer.Wait, len(p.Timers))
	}
	for i := range p.Waits {
		w := &p.Waits[i]
		if encoding.Octet(c, &w.For); w.For != timer.NoWait {
			encoding.CutText(c, &w.On, encoding.MaxErr, "cause")
		}
		if c.Reads && !w.For.Known() {
			*w = timer.Wait{}
		}
	}
}
