package ring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"carillon/internal/feature"
)

// MemberState is the view of gossip of a node: a hint, never a reason to move data.
type MemberState uint8

// The states. A suspect still counts as alive: the library does not report its suspicions.
const (
	MemberAlive MemberState = iota
	MemberLeft              // it announced that it stops
	MemberDead              // it no longer answers anybody
)

func (s MemberState) String() string {
	return [...]string{"alive", "left", "dead"}[s]
}

// Member is a node as gossip knows it.
type Member struct {
	ID     uint64
	Starts uint32 // (ID, Starts) names a process

	Name, HTTP, Peer, Zone, Version string
	Level                           feature.Level // the highest that its build understands
	Gossip                          string        // IP:port; set by gossip itself
	// Its cluster's id; empty before it has founded or joined one.
	Cluster string

	Expect, Shards, Replicas int // founding wishes; 0: none

	State MemberState
}

// Bounds of Members.
const (
	maxMembers      = 4096 // nodes known at once; further ones are not let in
	maxGone         = 1024 // of these, dead or left ones; the longest gone are forgotten
	maxJoins        = 64   // addresses tried in one round
	joinConcurrency = 8    // of these at the same time
	maxNotices      = 256  // log lines that wait
	maxKinds        = 1024 // kinds of log line remembered as logged

	resolveLimit = 3 * time.Second
	publishLimit = time.Second
	leaveLimit   = time.Second // twice: for the metadata, and for the library's own message
	aloneRetry   = time.Second
	noticeRepeat = 5 * time.Minute // between two log lines of one kind
)

// Pace are the intervals of gossip; zero means the default.
type Pace struct {
	// 1 s: each node asks another one whether it is there. A crash is noticed in about 5.
	Probe    time.Duration
	Gossip   time.Duration // 200 ms: news are passed on
	PushPull time.Duration // 15 s: a full exchange with some node
	Rejoin   time.Duration // 10 s: addresses of nodes that are not there are tried again
}

// MembersConfig configures Members. Zero values mean none, but for Pace.
type MembersConfig struct {
	Self Member // Gossip and State are ignored
	// host:port, TCP and UDP; port 0 picks a free one. Empty: no gossip, this node is all there is.
	Bind      string
	Advertise string // host that others reach this node at, when that is not the one of Bind
	// host:port of nodes to find the others by; this node's own may be among them.
	Join []string
	// Each 16, 24 or 32 bytes: the first encrypts, all decrypt; none: gossip is not encrypted.
	Keys   [][]byte
	Pace   Pace
	Logger *slog.Logger
	// Told after the answer of List has changed; from a goroutine of Run, and may call back.
	Changed func()
}

// Members knows the other nodes and their addresses, by gossip. Its answers are hints. It finds
// nodes by joining the configured ones, keeps trying those it lost, and never sees a node of
// another cluster.
type Members struct {
	cfg     MembersConfig
	log     *slog.Logger
	started atomic.Bool
	ready   chan struct{}
	gossip  *gossip // set before ready is closed

	republish chan struct{} // the metadata has changed
	dirty     chan struct{} // Changed is to be called
	notices   chan notice

	// Taken under the library's locks: nothing of the library may be called while it is held.
	mu      sync.Mutex
	self    Member
	leaving bool
	seen    map[uint64]sighting // by node id: its latest start
	gone    uint64              // counts departures
	refused map[string]struct{} // logged already
}

// sighting is one node as last heard of.
type sighting struct {
	member Member
	node   string // its name in the library
	goneAt uint64 // when not alive: the count of departures, to forget the oldest first
}

// notice is a log line that waits to be written. Lines of one kind are logged once in noticeRepeat,
// those without a kind always.
type notice struct {
	level      slog.Level
	kind, text string
	detail     []any
}

var errOtherCluster = errors.New("it belongs to another cluster")

// NewMembers checks the configuration; it binds nothing.
func NewMembers(cfg MembersConfig) (*Members, error) {
	cfg.Self.State, cfg.Self.Gossip = MemberAlive, ""
	cfg.Pace.Probe = cmp.Or(cfg.Pace.Probe, time.Second)
	cfg.Pace.Gossip = cmp.Or(cfg.Pace.Gossip, 200*time.Millisecond)
	cfg.Pace.PushPull = cmp.Or(cfg.Pace.PushPull, 15*time.Second)
	cfg.Pace.Rejoin = cmp.Or(cfg.Pace.Rejoin, 10*time.Second)
	if cfg.Changed == nil {
		cfg.Changed = func() {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	_, faults := encodeMember(cfg.Self, false)
	addresses := cfg.Join
	if cfg.Bind != "" {
		addresses = append([]string{cfg.Bind}, addresses...)
	}
	for _, addr := range addresses {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			faults = errors.Join(faults, fmt.Errorf("gossip address: %w", err))
		}
	}
	faults = errors.Join(faults, checkKeys(cfg.Keys))
	if faults != nil {
		return nil, fmt.Errorf("ring: %w", faults)
	}
	return &Members{
		cfg: cfg, log: cfg.Logger, self: cfg.Self,
		ready:     make(chan struct{}),
		republish: make(chan struct{}, 1),
		dirty:     make(chan struct{}, 1),
		notices:   make(chan notice, maxNotices),
		seen:      map[uint64]sighting{},
		refused:   map[string]struct{}{},
	}, nil
}

// Ready is closed once the sockets are bound.
func (m *Members) Ready() <-chan struct{} { return m.ready }

// Addr is where other nodes reach this one's gossip, IP:port; empty before Ready.
func (m *Members) Addr() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.self.Gossip
}

// List is everybody known, this node among them, in order of id.
func (m *Members) List() []Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Member, 0, len(m.seen)+1)
	out = append(out, m.self)
	for _, s := range m.seen {
		out = append(out, s.member)
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Update changes this node's description to others, but for its id, starts, name and gossip
// address. change must not call back. The error is that it would not fit; then nothing changes.
func (m *Members) Update(change func(*Member)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.self
	change(&next)
	next.ID, next.Starts, next.Name, next.Gossip, next.State = m.self.ID, m.self.Starts, m.self.Name, m.self.Gossip, m.self.State
	if next == m.self {
		return nil
	}
	if _, err := encodeMember(next, m.leaving); err != nil {
		return fmt.Errorf("ring: %w", err)
	}
	m.self = next
	for id, s := range m.seen {
		if foreign(m.self, s.member) {
			m.refuseLocked(s.member)
			delete(m.seen, id)
		}
	}
	signal(m.republish)
	signal(m.dirty)
	return nil
}

// Run binds, joins, and keeps in touch until ctx ends. Then it announces that this node leaves,
// within about 2 s. It runs once.
func (m *Members) Run(ctx context.Context) error {
	if m.started.Swap(true) {
		return errors.New("ring: gossip has run already")
	}
	if m.cfg.Bind == "" {
		return m.runAlone(ctx)
	}
	g, err := startGossip(ctx, gossipConfig{
		node: nodeName(m.cfg.Self), bind: m.cfg.Bind, advertise: m.cfg.Advertise, keys: m.keys(), pace: m.cfg.Pace,
		debug: func() bool { return m.log.Enabled(context.Background(), slog.LevelDebug) },
	}, m)
	if err != nil {
		return fmt.Errorf("ring: gossip on %s: %w", m.cfg.Bind, err)
	}
	m.gossip = g
	close(m.ready)
	if err := m.SetKeys(m.keys()); err != nil { // they may have changed since startGossip took them
		m.log.Error("gossip: the keys could not be changed", "err", err)
	}

	var delivering, working sync.WaitGroup
	end := make(chan struct{})
	delivering.Go(func() { m.deliver(end) })
	working.Go(func() { m.publish(ctx) })
	m.keepJoined(ctx)
	working.Wait()

	m.announceLeave()
	g.shutdown()
	close(end)
	delivering.Wait()
	return nil
}

// runAlone is Run without other nodes: it opens no port and sends nothing.
func (m *Members) runAlone(ctx context.Context) error {
	close(m.ready)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.republish: // nobody would read it
		case <-m.dirty:
			m.cfg.Changed()
		}
	}
}

// announceLeave announces twice that this node stops: in its metadata, since the library does not
// pass on whether a node has left or died, and by the library's own message, which takes effect at
// once.
func (m *Members) announceLeave() {
	m.mu.Lock()
	m.leaving = true
	m.mu.Unlock()
	if err := m.gossip.publish(leaveLimit); err != nil {
		m.log.Debug("gossip: cannot publish that this node leaves", "err", err)
	}
	if err := m.gossip.leave(leaveLimit); err != nil {
		m.log.Debug("gossip: cannot announce that this node leaves", "err", err)
	}
}

func (m *Members) publish(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.republish:
			if err := m.gossip.publish(publishLimit); err != nil {
				// The next full exchange carries it.
				m.queueNotice(notice{level: slog.LevelDebug, text: "gossip: publish: " + err.Error()})
			}
		}
	}
}

// keepJoined tries the addresses of nodes that are not there, over and over: after a partition that
// lasted longer than the library's memory of the dead, no side contacts the other by itself.
func (m *Members) keepJoined(ctx context.Context) {
	for round := 0; ; round++ {
		m.join(ctx, round)
		wait := m.cfg.Pace.Rejoin
		if len(m.cfg.Join) > 0 && m.alone() {
			wait = min(wait, aloneRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (m *Members) join(ctx context.Context, round int) {
	addrs := m.missing(ctx)
	if n := len(addrs); n > maxJoins { // the next ones in the next round
		start := round * maxJoins % n
		addrs = append(addrs[start:], addrs[:start]...)[:maxJoins]
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, joinConcurrency)
	for _, addr := range addrs {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := m.gossip.join(addr); err != nil && ctx.Err() == nil {
				m.queueNotice(joinNotice(addr, err))
			}
		})
	}
	wg.Wait()
}

func joinNotice(addr string, err error) notice {
	n := explain(err.Error())
	switch {
	case strings.Contains(err.Error(), errOtherCluster.Error()):
		n.level = slog.LevelDebug // refuseLocked logs it, with both addresses
	case n.level == slog.LevelDebug: // nothing to explain: it is not there
		n.level, n.text = slog.LevelInfo, "gossip: cannot join; trying again"
	}
	n.kind, n.detail = "join "+addr+n.text, []any{"addr", addr, "cause", strings.Join(strings.Fields(err.Error()), " ")}
	return n
}

// missing are the configured addresses and those of dead members at which nobody is known to live.
func (m *Members) missing(ctx context.Context) []string {
	want := m.resolveJoin(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	there := map[string]bool{m.self.Gossip: true}
	for _, id := range slices.Sorted(maps.Keys(m.seen)) {
		switch s := m.seen[id]; s.member.State {
		case MemberAlive:
			there[s.member.Gossip] = true
		case MemberDead:
			want = append(want, s.member.Gossip)
		}
	}
	slices.Sort(want)
	return slices.DeleteFunc(slices.Compact(want), func(addr string) bool { return there[addr] })
}

// resolveJoin resolves the configured names side by side: one that gets no answer keeps no other
// waiting.
func (m *Members) resolveJoin(ctx context.Context) (found []string) {
	resolved := make([][]netip.AddrPort, len(m.cfg.Join))
	var wg sync.WaitGroup
	slots := make(chan struct{}, joinConcurrency)
	for i, addr := range m.cfg.Join {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			var err error
			if resolved[i], err = resolve(ctx, addr); err != nil && ctx.Err() == nil {
				m.queueNotice(notice{slog.LevelWarn, "resolve " + addr, "gossip: cannot resolve the name of a node to join", []any{"addr", addr, "cause", err}})
			}
		})
	}
	wg.Wait()
	for _, list := range resolved {
		for _, a := range list {
			found = append(found, a.String())
		}
	}
	return found
}

func (m *Members) alone() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.seen {
		if s.member.State == MemberAlive {
			return false
		}
	}
	return true
}

// deliver is the only goroutine that logs and calls Changed, so that neither happens under the
// library's locks.
func (m *Members) deliver(end <-chan struct{}) {
	logged := map[string]struct{}{} // kinds, since the last tick
	tick := time.NewTicker(noticeRepeat)
	defer tick.Stop()
	write := func(n notice) {
		if n.kind != "" {
			if _, known := logged[n.kind]; known || len(logged) >= maxKinds {
				return
			}
			logged[n.kind] = struct{}{}
		}
		m.log.Log(context.Background(), n.level, n.text, n.detail...)
	}
	for {
		select {
		case n := <-m.notices:
			write(n)
		case <-m.dirty:
			m.cfg.Changed()
		case <-tick.C:
			clear(logged)
		case <-end:
			for len(m.notices) > 0 {
				write(<-m.notices)
			}
			return
		}
	}
}

// queueNotice hands a log line to deliver, and drops it when too many
// wait.
func (m *Members) queueNotice(n notice) {
	select {
	case m.notices <- n:
	default:
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func resolveOne(ctx context.Context, addr string) (netip.AddrPort, error) {
	all, err := resolve(ctx, addr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return all[0], nil
}

// resolve finds the addresses of host:port, at least one, IPv4 first. The library's own way asks a
// name server for everything it has, and binds to all addresses where it cannot resolve a name.
func resolve(ctx context.Context, addr string) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := net.LookupPort("tcp", service)
	if err != nil {
		return nil, err
	}
	ips := []netip.Addr{netip.IPv4Unspecified()}
	if literal, err := netip.ParseAddr(host); err == nil {
		ips[0] = literal
	} else if host != "" {
		ctx, cancel := context.WithTimeout(ctx, resolveLimit)
		defer cancel()
		if ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return nil, err
		}
	}
	out := make([]netip.AddrPort, 0, len(ips))
	for _, ip := range ips {
		out = append(out, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}
	slices.SortFunc(out, netip.AddrPort.Compare) // IPv4 sorts before IPv6
	return out[:min(len(out), 16)], nil
}
