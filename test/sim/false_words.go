package sim

import (
	"context"
	"time"

	"carillon/shard/table"
	"carillon/timer"
)

// A false word: something in the network refuses a node's connections to another in the name of a
// process that lives. What the process sends on connections of its own still arrives: a network
// that also silences it, at a majority, and says that it is gone, cannot be told from its death.
type falseWord struct {
	since time.Duration
	life  uint64 // of the process that lives
}

// refused is what a process was told of another's end, true or not.
type refused struct {
	owner table.Incarnation
	at    time.Duration
}

// How long a process must refuse connections, and be silent, until it seems to be gone, as in
// transport/peer: when its connections have ended, and while one of them stands.
const (
	refusedFor = 250 * time.Millisecond
	silentFor  = 3 * time.Second
)

// drawFalseWords draws the rate of false words.
func (s *swarm) drawFalseWords(c chance) {
	if rate := c.seldom(0.5); c.IntN(2) == 0 && rate > 0 {
		s.falseWords = rate
		s.slowest = min(s.slowest, silentFor/8) // a link that keeps its order is silent while a frame is late
	}
}

// speakFalsely has some nodes hear a false word about a process, a leader as a rule. Their frames to
// it may be refused too.
func (w *World) speakFalsely() {
	n := w.inUse(w.words)
	if leader := w.leader(timer.ShardID(w.words.IntN(w.swarm.shards + 1))); leader != nil {
		n = leader
	}
	if !n.up || n.paused || n.host == nil {
		return
	}
	if w.words.IntN(4) == 0 { // its disk is said to be slow, and is not: it hands its shards over, and takes them again
		w.counts.SlowWords++
		w.note(n, "is said to be slow", 0, 0, "")
		n.self.Health.Synced(n.clock.Mono(), time.Second)
		return
	}
	d, deaf := w.words.between(100*time.Millisecond, 4*time.Second), w.words.IntN(2) == 0
	for _, other := range w.nodes {
		link := [2]uint64{other.id, n.id}
		if other == n || !other.up || other.host == nil || w.net.blocked(n.id, other.id) || w.words.IntN(4) == 0 {
			continue
		}
		w.counts.FalseWords++
		w.note(other, "hears falsely", n.id, uint64(d.Milliseconds()), "")
		w.net.false[link] = falseWord{w.now, n.life}
		if deaf {
			w.net.cut[link] = true
		}
		w.hearEnd(other, table.NewIncarnation(n.id, n.starts))
		w.after(d, func() {
			delete(w.net.false, link)
			if deaf {
				delete(w.net.cut, link)
			}
		})
	}
}

// endFalseWords ends those about processes that are silent for another reason.
func (w *World) endFalseWords() {
	for link, word := range w.net.false {
		if n := w.node(link[1]); n.paused || n.life != word.life || w.net.blocked(link[1], link[0]) {
			delete(w.net.false, link)
		}
	}
}

// FindsGone implements member.Peers.
func (p *peers) FindsGone(_ context.Context, node uint64, starts uint32) bool {
	n, w := p.n, p.n.w
	to := w.node(node)
	was, told := n.refused[node]
	if to == nil || n.life != p.life || !told || was.owner != table.NewIncarnation(node, starts) || w.net.blocked(node, n.id) {
		return false
	}
	if to.up && !to.paused && to.starts > starts {
		return true // its next process answers
	}
	word, falsely := w.net.false[[2]uint64{n.id, node}]
	lasts := refusedFor
	if to.up { // its connections stand
		if !falsely || word.life != to.life || to.paused {
			return false
		}
		lasts = silentFor
	}
	return w.now-max(was.at, n.heard[node]) >= lasts
}
