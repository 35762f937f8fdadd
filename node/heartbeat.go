package node

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"carillon/ring"
	"carillon/shard"
)

const (
	beatEach     = 250 * time.Millisecond
	aliveFor     = 1500 * time.Millisecond // without a beat; then suspect
	suspectFor   = 5 * time.Second         // then down
	maxBeatLeads = 65_536
	maxUnfitText = 200
	ownStepMs    = 100 // this node's clock was set if it goes on by so much more or less than the monotonic one between two beats
)

// beat is what a node says of itself to every other one, four times a second.
type beat struct {
	WallMs int64
	Starts uint32
	Aside  bool   // it gives its leaderships away: it stops, drains, or is unfit
	Unfit  string // why, if something is wrong with it
	Leads  []shard.ID
	Says   ring.Says // of its parts of topics' limits
}

// beatFrame begins the control frames that carry a beat; shard's begin with its own version.
const beatFrame = 0xB1

var errBeat = errors.New("malformed beat")

func (b *beat) encode() []byte {
	out := append(make([]byte, 0, 64+2*len(b.Leads)), beatFrame)
	out = binary.AppendVarint(out, b.WallMs)
	out = binary.AppendUvarint(out, uint64(b.Starts))
	aside := byte(0)
	if b.Aside {
		aside = 1
	}
	unfit := b.Unfit[:min(len(b.Unfit), maxUnfitText)]
	out = append(append(out, aside, byte(len(unfit))), unfit...)
	out = binary.AppendUvarint(out, uint64(len(b.Leads)))
	last := shard.ID(0)
	for _, id := range b.Leads {
		out = binary.AppendUvarint(out, uint64(id-last))
		last = id
	}
	out = append(out, 0) // to a node of an older kind: too much is held to name it
	if b.Says.Untold {
		return out
	}
	unsure := byte(0)
	if b.Says.Unsure {
		unsure = 1
	}
	out = binary.AppendUvarint(append(out, unsure), b.Says.Seq)
	out = binary.AppendUvarint(out, uint64(len(b.Says.Heard)))
	for _, h := range b.Says.Heard {
		out = binary.AppendUvarint(binary.AppendUvarint(out, h.Node), h.Seq)
	}
	out = binary.AppendUvarint(out, uint64(len(b.Says.Parts)))
	before := shard.TopicID(0)
	for _, p := range b.Says.Parts {
		out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(p.Topic-before)), uint64(p.Leases))
		before = p.Topic
	}
	return out
}

func decodeBeat(in []byte) (*beat, error) {
	in = in[1:]
	number := func() uint64 {
		v, n := binary.Uvarint(in)
		if n <= 0 {
			in = nil
			return 0
		}
		in = in[n:]
		return v
	}
	var b beat
	wall, n := binary.Varint(in)
	if n <= 0 {
		return nil, errBeat
	}
	in = in[n:]
	b.WallMs, b.Starts = wall, uint32(number())
	if len(in) < 2 || len(in) < 2+int(in[1]) {
		return nil, errBeat
	}
	b.Aside, b.Unfit = in[0] != 0, string(in[2:2+int(in[1])])
	in = in[2+int(in[1]):]
	count := number()
	if count > maxBeatLeads || count > uint64(len(in)) {
		return nil, errBeat
	}
	last := uint64(0)
	for range count {
		last += number()
		b.Leads = append(b.Leads, shard.ID(last))
	}
	var err error
	b.Says, err = decodeSays(in, wall)
	return &b, err
}

// decodeSays reads the last part of a beat: a node of an older kind has another, or none.
func decodeSays(in []byte, wallMs int64) (ring.Says, error) {
	says := ring.Says{WallMs: wallMs}
	if len(in) < 2 || in[0] != 0 {
		says.Untold = true
		return says, nil
	}
	says.Unsure = in[1] != 0
	in = in[2:]
	bad := false
	number := func() uint64 {
		v, n := binary.Uvarint(in)
		if n <= 0 {
			in, bad = nil, true
			return 0
		}
		in = in[n:]
		return v
	}
	count := func() uint64 {
		n := number()
		bad = bad || n > uint64(len(in))
		return n
	}
	says.Seq = number()
	for range count() {
		if bad {
			break
		}
		says.Heard = append(says.Heard, ring.Heard{Node: number(), Seq: number()})
	}
	topic := uint64(0)
	for range count() {
		if bad {
			break
		}
		topic += number()
		leases := number()
		bad = bad || topic > math.MaxUint32 || leases > math.MaxInt32
		says.Parts = append(says.Parts, ring.Part{Topic: shard.TopicID(topic), Leases: int(leases)})
	}
	if bad {
		return says, errBeat
	}
	return says, nil
}

// pulse keeps what the last beat of each node said, and since when there was none.
type pulse struct {
	mu    sync.Mutex
	began time.Duration
	ownMs int64 // this node's wall clock less its monotonic one
	nodes map[uint64]*heard
}

// heard is one node's last beat.
type heard struct {
	at      time.Duration // monotonic
	beat    beat
	offsets [8]int64 // its clock less this node's, by the last beats; the largest is the least delayed
	n       int      // beats since they can be compared
}

func newPulse(now time.Duration) *pulse { return &pulse{began: now, nodes: map[uint64]*heard{}} }

// hear takes a beat.
func (p *pulse) hear(now time.Duration, wallMs int64, node uint64, b *beat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heedStep(wallMs - now.Milliseconds())
	h := p.nodes[node]
	if h == nil || h.beat.Starts != b.Starts {
		h = &heard{}
		p.nodes[node] = h
	}
	h.at, h.beat = now, *b
	h.offsets[h.n%len(h.offsets)] = b.WallMs - wallMs
	h.n++
}

// heedStep forgets what was measured by this node's own clock before it was set. Were it not so, a clock that jumps ahead would go
// unnoticed for as many beats as are kept, and what the node leads would fire too soon for so long.
func (p *pulse) heedStep(ownMs int64) {
	if d := ownMs - p.ownMs; d > ownStepMs || d < -ownStepMs {
		for _, h := range p.nodes {
			h.n = 0
		}
	}
	p.ownMs = ownMs
}

// met takes note of a node that was spoken to but has sent no beat: it is there, and not to lead yet.
func (p *pulse) met(now time.Duration, wallMs int64, node uint64, starts uint32) {
	if _, ago, ok := p.last(now, node); !ok || ago >= aliveFor {
		p.hear(now, wallMs, node, &beat{WallMs: wallMs, Starts: starts, Aside: true})
	}
}

// offset is how far the node's clock is ahead, in ms. A beat's way only makes it look behind: the largest of some is nearest.
func (h *heard) offset() (ms int64, ok bool) {
	if h.n == 0 {
		return 0, false
	}
	return slices.Max(h.offsets[:min(h.n, len(h.offsets))]), true
}

// forget drops a removed node.
func (p *pulse) forget(node uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.nodes, node)
}

// last is a copy of what a node said, and how long ago; false: it was never heard.
func (p *pulse) last(now time.Duration, node uint64) (h heard, ago time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.nodes[node]
	if v == nil {
		return heard{}, now - p.began, false
	}
	return *v, now - v.at, true
}

// facts are what the controller knows of the nodes.
func (p *pulse) facts(now time.Duration, wallMs int64, self uint64, unfit string, nodes []ring.Node) ring.Facts {
	f := ring.Facts{NowMs: wallMs, Nodes: map[uint64]ring.NodeFacts{self: {Alive: true, Unfit: unfit}}}
	for _, n := range nodes {
		if n.ID == self {
			continue
		}
		h, ago, ok := p.last(now, n.ID)
		facts := ring.NodeFacts{Alive: ok && ago < suspectFor, Unfit: h.beat.Unfit}
		if !facts.Alive {
			facts.DownForMs = ago.Milliseconds()
		}
		f.Nodes[n.ID] = facts
	}
	return f
}

// clockOff says how far this node's clock is from the median of all that are heard, itself included; ok when there are three or more.
func (p *pulse) clockOff(now time.Duration) (ms int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	offsets := []int64{0}
	for _, h := range p.nodes {
		if ms, ok := h.offset(); ok && now-h.at < aliveFor {
			offsets = append(offsets, ms)
		}
	}
	if len(offsets) < 3 {
		return 0, false
	}
	slices.Sort(offsets)
	return -offsets[len(offsets)/2], true
}
