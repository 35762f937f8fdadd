package migrate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/gomodule/redigo/redis"

	"carillon/cmd/carillon/terminal"
	"carillon/transport/api/web"
)

type redisCmd struct {
	RedisFlags `embed:""`
	Zset       string `required:"" placeholder:"KEY" help:"Sorted set of the jobs; a score is when a job is due."`
	Unit       string `default:"s" enum:"s,ms" placeholder:"s|ms" help:"Unit of the scores, which are Unix times (${default})."`
	Hash       string `placeholder:"KEY" xor:"payload" help:"Hash that has the payload of each member; else the member is the payload."`
	Keys       string `placeholder:"PREFIX" xor:"payload" help:"The payload of each member is the string at PREFIX and member."`
	Topic      string `placeholder:"TOPIC" help:"Topic for the timers; else the name of the sorted set."`
}

// redisPage is how many members are under way at once.
const redisPage = 200

func (r *redisCmd) Run(term *terminal.Terminal) error {
	if r.Topic != "" && !web.ValidTopic(r.Topic) {
		return terminal.Usagef("--topic: %q cannot be the name of a topic", r.Topic)
	}
	c, err := r.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	watched := []any{r.Zset}
	if r.Hash != "" {
		watched = append(watched, r.Hash)
	}
	if err := c.watch(watched...); err != nil {
		return err
	}
	total, err := c.count("ZCARD", r.Zset)
	if err != nil {
		return err
	}
	if total == 0 {
		return fmt.Errorf("there is no sorted set %q in this database, or it is empty", r.Zset)
	}
	w := newWriter(term)
	if err := w.begin(r.Zset, cmp.Or(r.Topic, topicOf(r.Zset)), defaultLease, false); err != nil {
		return err
	}
	bare := 0
	for from := 0; from < total; from += redisPage {
		page, err := c.texts("ZRANGE", r.Zset, from, from+redisPage-1, "WITHSCORES")
		if err != nil {
			return err
		}
		without, err := r.page(c, w, page)
		if err != nil {
			return err
		}
		bare += without
	}
	if err := c.unchanged(); err != nil {
		return err
	}
	var left []string
	if bare > 0 {
		left = []string{fmt.Sprintf("%d members without a payload", bare)}
	}
	if err := w.end(total-bare, left...); err != nil {
		return err
	}
	return w.close()
}

// page writes members with their scores, and counts those whose payload is gone.
func (r *redisCmd) page(c redisConn, w *writer, page []string) (bare int, err error) {
	for i := 0; i+1 < len(page) && err == nil; i += 2 {
		switch {
		case r.Hash != "":
			err = c.Send("HGET", r.Hash, page[i])
		case r.Keys != "":
			err = c.Send("GET", r.Keys+page[i])
		}
	}
	if err != nil {
		return 0, fmt.Errorf("redis: %w", err)
	}
	for i := 0; i+1 < len(page); i += 2 {
		member := page[i]
		payload := []byte(member)
		if r.Hash != "" || r.Keys != "" {
			payload, err = redis.Bytes(c.receive())
			if errors.Is(err, redis.ErrNil) {
				bare++
				continue
			}
			if err != nil {
				return 0, fmt.Errorf("redis: payload of %q: %w", member, err)
			}
		}
		j := job{ID: idOf(member)}
		if j.AtMs, err = r.moment(page[i+1]); err != nil {
			return 0, fmt.Errorf("%q: %w", member, err)
		}
		j.carry(payload)
		if err := w.add(&j); err != nil {
			return 0, err
		}
	}
	return bare, nil
}

// moment is a score in Unix milliseconds, rounded up. A score up to 0 is due at once.
func (r *redisCmd) moment(score string) (int64, error) {
	at, err := strconv.ParseFloat(score, 64)
	if err != nil {
		return 0, fmt.Errorf("score %q: %w", score, err)
	}
	if r.Unit == "s" {
		at *= 1000
	}
	switch {
	case math.IsNaN(at) || at > maxMoment:
		return 0, fmt.Errorf("score %s is far ahead: are these milliseconds (--unit ms)?", score)
	case at > 0 && at < web.LeastMs && r.Unit == "s":
		return 0, fmt.Errorf("score %s is before 1973: %w", score, errNoTime)
	case at > 0 && at < web.LeastMs:
		return 0, fmt.Errorf("score %s is before 1973: %w", score, errSeconds)
	}
	return int64(math.Ceil(max(at, 0) - 0.001)), nil // a float of today is exact to 0.0003 ms
}

var (
	errSeconds = errors.New("are these seconds (--unit s), or no Unix times?")
	errNoTime  = errors.New("is it no Unix time?")
)

// maxMoment is the year 2286: as seconds it has ten digits.
const maxMoment = 1e13

// defaultLease is how long a consumer has for a job of a source that has no such time.
const defaultLease = 30e9
