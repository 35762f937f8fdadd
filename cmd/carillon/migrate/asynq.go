package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"google.golang.org/protobuf/encoding/protowire"

	"carillon/cmd/carillon/terminal"
	"carillon/transport/api/web"
)

type asynqCmd struct {
	RedisFlags `embed:""`
	Queue      []string `placeholder:"QUEUE" help:"Queues; all by default. Each becomes a topic."`
}

func (a *asynqCmd) Run(term *terminal.Terminal) error {
	c, err := a.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	queues, err := c.texts("SORT", "asynq:queues", "ALPHA")
	if err != nil {
		return err
	}
	if len(queues) == 0 {
		return errors.New("there is no queue of Asynq in this database")
	}
	for _, name := range a.Queue {
		if !slices.Contains(queues, name) {
			return fmt.Errorf("there is no queue %s of Asynq in this database", name)
		}
	}
	if len(a.Queue) > 0 {
		queues = a.Queue
	}
	w := newWriter(term)
	w.topics(queues)
	for _, name := range queues {
		q := asynqQueue{c, w, "asynq:{" + name + "}:", 0}
		if err := q.read(name); err != nil {
			return fmt.Errorf("queue %s: %w", name, err)
		}
	}
	return w.close()
}

// asynqQueue reads one queue, whose keys have a common prefix.
type asynqQueue struct {
	c      redisConn
	w      *writer
	prefix string
	total  int
}

// asynqLease is Asynq's time-out of a task that has none.
const asynqLease = 30 * time.Minute

func (q *asynqQueue) read(name string) error {
	if err := q.c.watch(q.prefix+"pending", q.prefix+"active", q.prefix+"scheduled", q.prefix+"retry"); err != nil {
		return err
	}
	if err := q.idle(); err != nil {
		return err
	}
	paused, err := q.c.count("EXISTS", q.prefix+"paused")
	if err != nil {
		return err
	}
	if err := q.w.begin(name, topicOf(name), asynqLease, paused > 0); err != nil {
		return err
	}
	pending, err := q.c.count("LLEN", q.prefix+"pending")
	if err != nil {
		return err
	}
	for to := pending; to > 0; to -= redisPage { // the oldest are at the end
		ids, err := q.c.texts("LRANGE", q.prefix+"pending", max(to-redisPage, 0), to-1)
		if err == nil {
			err = q.tasks(ids, nil)
		}
		if err != nil {
			return err
		}
	}
	q.total = pending
	for _, set := range []string{"scheduled", "retry"} {
		if err := q.sorted(set); err != nil {
			return err
		}
	}
	if err := q.c.unchanged(); err != nil {
		return err
	}
	var left []string
	for _, set := range []string{"archived", "completed"} {
		n, err := q.c.count("ZCARD", q.prefix+set)
		if err != nil {
			return err
		}
		if n > 0 {
			left = append(left, fmt.Sprintf("%d %s", n, set))
		}
	}
	return q.w.end(q.total, left...)
}

// idle refuses a queue with tasks of which it is not known whether they will be done.
func (q *asynqQueue) idle() error {
	active, err := q.c.count("LLEN", q.prefix+"active")
	if err == nil && active > 0 {
		err = fmt.Errorf("%d tasks are active: stop the servers, which puts them back", active)
	}
	if err != nil {
		return err
	}
	groups, err := q.c.texts("SMEMBERS", q.prefix+"groups")
	if err == nil && len(groups) > 0 {
		err = fmt.Errorf("tasks wait in %d groups: let Asynq aggregate them first", len(groups))
	}
	return err
}

func (q *asynqQueue) sorted(set string) error {
	total, err := q.c.count("ZCARD", q.prefix+set)
	if err != nil {
		return err
	}
	q.total += total
	for from := 0; from < total; from += redisPage {
		page, err := q.c.texts("ZRANGE", q.prefix+set, from, from+redisPage-1, "WITHSCORES")
		if err != nil {
			return err
		}
		var ids, scores []string
		for i := 0; i+1 < len(page); i += 2 {
			ids, scores = append(ids, page[i]), append(scores, page[i+1])
		}
		if err := q.tasks(ids, scores); err != nil {
			return err
		}
	}
	return nil
}

// tasks writes tasks by their ids. Without scores they have waited since they were put in the
// queue.
func (q *asynqQueue) tasks(ids, scores []string) error {
	for _, id := range ids {
		if err := q.c.Send("HMGET", q.prefix+"t:"+id, "msg", "pending_since"); err != nil {
			return fmt.Errorf("redis: task %s: %w", id, err)
		}
	}
	for i, id := range ids {
		fields, err := redis.Strings(q.c.receive())
		if err != nil {
			return fmt.Errorf("redis: task %s: %w", id, err)
		}
		if len(fields) != 2 || fields[0] == "" {
			return fmt.Errorf("task %s is gone: %w", id, errChanged)
		}
		t, err := decodeTask([]byte(fields[0]))
		if err != nil {
			return fmt.Errorf("task %s: %w", id, err)
		}
		ns, _ := strconv.ParseInt(fields[1], 10, 64) // absent: it has waited for ever
		atMs := ns / 1e6
		if scores != nil {
			s, err := strconv.ParseFloat(scores[i], 64)
			if err != nil {
				return fmt.Errorf("task %s: %w", id, err)
			}
			atMs = int64(s) * 1000
		}
		if err := q.w.add(t.job(id, atMs)); err != nil {
			return err
		}
	}
	return nil
}

// task has what a timer keeps of Asynq's TaskMessage.
type task struct {
	kind           string
	payload        []byte
	retry, retried int64
	deadline       int64 // Unix seconds; 0: none
}

func (t *task) job(id string, atMs int64) *job {
	left := min(max(t.retry-t.retried+1, 1), 1000)
	j := &job{ID: idOf(id), AtMs: atMs, Labels: []string{labelOf("type", t.kind)}, Retry: &retry{int(left)}}
	if t.deadline > 0 {
		j.ExpiresAfter = time.Duration(max(t.deadline*1000-max(atMs, web.LeastMs), 1) * 1e6).String()
	}
	j.carry(t.payload)
	return j
}

var errNoTask = errors.New("this is no task as Asynq writes it since version 0.18")

// decodeTask reads a TaskMessage of Asynq's internal/proto/asynq.proto, which has numbers and texts.
func decodeTask(msg []byte) (t task, err error) {
	for len(msg) > 0 {
		field, kind, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return t, errNoTask
		}
		msg = msg[n:]
		var v uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(msg)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(msg)
		default:
			return t, errNoTask
		}
		if n < 0 {
			return t, errNoTask
		}
		msg = msg[n:]
		switch field {
		case 1:
			t.kind = string(text)
		case 2:
			t.payload = text
		case 5:
			t.retry = int64(v)
		case 6:
			t.retried = int64(v)
		case 9:
			t.deadline = int64(v)
		}
	}
	return t, nil
}
