package metrics

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"carillon/ring"
	"carillon/shard"
	"carillon/timer"
)

// Bounds of the series of topics.
const (
	ShownTopics  = 100  // that have series of their own; the rest is otherTopics
	rankedTopics = 1000 // whose activity is remembered
	// After which an attempt counts for half in the order of the busiest.
	topicHalfLife = 10 * time.Minute
)

// otherTopics is the name of all topics that have no series of their own. No topic can have it.
const otherTopics = "_other"

var (
	topicTimersDesc = prometheus.NewDesc("carillon_topic_timers", "Timers of a topic in the shards this node leads; the busiest topics, the rest as _other.", []string{"topic", "state"}, nil)
	topicOldestDesc = prometheus.NewDesc("carillon_topic_oldest_overdue_seconds", "How long ago the oldest due timer of a topic came due without being called; 0 while its window is shut.", []string{"topic"}, nil)
	topicFiredDesc  = prometheus.NewDesc("carillon_topic_fired_total", "Attempts of a topic by result.", []string{"topic", "result"}, nil)
)

var firedNames = [...]string{shard.FiredSuccess: "success", shard.FiredRetry: "retry", shard.FiredDead: "dead"}

// Topics is the prometheus.Collector of the busiest topics, each by itself. Which these are is
// decided at each scrape. A topic that is shown counts twice as busy, so that it does not come and
// go. The counters of a topic that is no longer shown stay as they are, and continue if it is shown
// again. Attempts meanwhile count for the others, so that no counter ever falls.
type Topics struct {
	from Sources
	most int // topics that are shown

	mu    sync.Mutex
	at    time.Time
	ranks map[timer.TopicID]*topicRank
	other shard.Fired
}

// topicRank is how busy a topic is.
type topicRank struct {
	score float64
	shown bool
	name  string
	fired shard.Fired // while it was shown
}

// NewTopics shows so many topics by themselves.
func NewTopics(from Sources, most int) *Topics { return &Topics{from: from, most: most} }

func (ts *Topics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{topicTimersDesc, topicOldestDesc, topicFiredDesc} {
		ch <- d
	}
}

func (ts *Topics) Collect(ch chan<- prometheus.Metric) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	host, state := ts.from.Host(), ts.from.State()
	activity := host.TakeActivity()
	now := time.Now()
	shown := ts.choose(state, &activity, now)
	counts, err := host.Counts(shown)
	if err != nil {
		return
	}
	rest, oldest := activity.Totals, int64(0)
	for id, a := range activity.Topics {
		if r := ts.ranks[id]; r != nil && r.shown {
			r.fired = sumOf(&r.fired, &a.Fired)
			continue
		}
		ts.other = sumOf(&ts.other, &a.Fired)
		oldest = max(oldest, a.OldestMs)
	}
	for i, id := range shown {
		r, n, oldest := ts.ranks[id], &counts[i], int64(0)
		if a := activity.Topics[id]; a != nil {
			oldest = a.OldestMs
		}
		sendTopic(ch, r.name, n, oldest, &r.fired)
		rest.Scheduled, rest.Leased = rest.Scheduled-n.Scheduled, rest.Leased-n.Leased
		rest.Done, rest.Dead = rest.Done-n.Done, rest.Dead-n.Dead
	}
	sendTopic(ch, otherTopics, &rest, oldest, &ts.other)
}

func sendTopic(ch chan<- prometheus.Metric, name string, n *timer.Counts, oldestMs int64, fired *shard.Fired) {
	timers := func(state string, n int64) { // the rest is a difference of two looks
		ch <- prometheus.MustNewConstMetric(topicTimersDesc, prometheus.GaugeValue, float64(max(n, 0)), name, state)
	}
	timers("scheduled", n.Scheduled)
	timers("leased", n.Leased)
	timers("done", n.Done)
	timers("dead", n.Dead)
	ch <- prometheus.MustNewConstMetric(topicOldestDesc, prometheus.GaugeValue, float64(oldestMs)/1000, name)
	for result, total := range fired {
		ch <- prometheus.MustNewConstMetric(topicFiredDesc, prometheus.CounterValue, float64(total), name, firedNames[result])
	}
}

func sumOf(a, b *shard.Fired) (sum shard.Fired) {
	for i := range sum {
		sum[i] = a[i] + b[i]
	}
	return sum
}

func attempts(f *shard.Fired) (n float64) {
	for _, results := range f {
		n += float64(results)
	}
	return n
}

// choose ranks the topics and returns those to show. All that wait may be many: each is weighed once,
// and what is kept is kept of the first alone.
func (ts *Topics) choose(state *ring.State, activity *shard.Activity, now time.Time) (shown []timer.TopicID) {
	decay := math.Exp2(-now.Sub(ts.at).Seconds() / topicHalfLife.Seconds())
	ts.at = now
	type candidate struct {
		id   timer.TopicID
		busy float64
	}
	list := make([]candidate, 0, len(ts.ranks)+len(activity.Topics)+ts.most)
	for id, r := range ts.ranks {
		r.score *= decay
		busy := 0.0
		if a := activity.Topics[id]; a != nil {
			r.score += attempts(&a.Fired)
			busy = float64(a.Overdue)
		}
		if busy += r.score; r.shown {
			busy = 2*busy + 1
		}
		list = append(list, candidate{id, busy})
	}
	for id, a := range activity.Topics {
		if ts.ranks[id] == nil {
			list = append(list, candidate{id, attempts(&a.Fired) + float64(a.Overdue)})
		}
	}
	for _, t := range state.Topics.List("", ts.most) { // where there are few, all of them
		if ts.ranks[t.ID] == nil && activity.Topics[t.ID] == nil {
			list = append(list, candidate{id: t.ID})
		}
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.busy, a.busy), cmp.Compare(a.id, b.id)) })
	ranks := make(map[timer.TopicID]*topicRank, min(len(list), rankedTopics))
	for i := 0; i < len(list) && len(ranks) < rankedTopics; i++ {
		id := list[i].id
		t, ok := state.Topic(id)
		if !ok {
			continue // it is gone
		}
		r := ts.ranks[id]
		if r == nil {
			r = &topicRank{}
			if a := activity.Topics[id]; a != nil {
				r.score = attempts(&a.Fired)
			}
		}
		if r.name, r.shown = t.Name, len(shown) < ts.most; r.shown {
			shown = append(shown, id)
		}
		ranks[id] = r
	}
	ts.ranks = ranks
	return shown
}

// WithoutTopics leaves out the metrics whose series name topics, or the receivers of their timers.
func WithoutTopics(from prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := from.Gather()
		return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
			return len(f.GetMetric()) > 0 && slices.ContainsFunc(f.GetMetric()[0].GetLabel(), func(l *dto.LabelPair) bool {
				return l.GetName() == "topic" || l.GetName() == "destination"
			})
		}), err
	})
}
