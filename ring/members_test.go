package ring

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carillon/internal/feature"
	"carillon/test/testkit"
	"go.uber.org/goleak"

	"pgregory.net/rapid"
)

// gossipNetwork is some Members on loopback; news is signalled whenever anybody's list changes or
// anybody logs.
type gossipNetwork struct {
	t    *testing.T
	news chan struct{}
}

type gossipMember struct {
	*Members
	log    *logLines
	cancel context.CancelFunc
	done   chan error
}

func newGossipNetwork(t *testing.T) *gossipNetwork {
	return &gossipNetwork{t, make(chan struct{}, 1)}
}

func (n *gossipNetwork) start(self Member, options ...func(*MembersConfig)) *gossipMember {
	n.t.Helper()
	if self.Name == "" {
		self.Name = fmt.Sprintf("n%d", self.ID)
	}
	log := &logLines{news: n.news}
	// Where nobody else listens: a port is still free when its node comes back.
	cfg := MembersConfig{
		Self: self, Bind: "127.0.7.1:0", Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo})),
		Pace:    Pace{Probe: 200 * time.Millisecond, Gossip: 20 * time.Millisecond, PushPull: 300 * time.Millisecond, Rejoin: 200 * time.Millisecond},
		Changed: func() { signal(n.news) },
	}
	for _, o := range options {
		o(&cfg)
	}
	m, err := NewMembers(cfg)
	testkit.Must(n.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	p := &gossipMember{m, log, cancel, make(chan error, 1)}
	go func() { p.done <- m.Run(ctx) }()
	n.t.Cleanup(func() { p.stop(n.t) })
	select {
	case <-m.Ready():
	case err := <-p.done:
		n.t.Fatalf("run: %v", err)
	}
	return p
}

func joining(others ...*gossipMember) func(*MembersConfig) {
	return func(c *MembersConfig) {
		for _, o := range others {
			c.Join = append(c.Join, o.Addr())
		}
	}
}

// stop ends it the orderly way and waits; the second time it does nothing.
func (gm *gossipMember) stop(t *testing.T) {
	if gm.cancel == nil {
		return
	}
	gm.cancel()
	gm.cancel = nil
	if err := <-gm.done; err != nil {
		t.Errorf("run: %v", err)
	}
}

// crash ends it without a word.
func (gm *gossipMember) crash(t *testing.T) {
	gm.gossip.shutdown()
	gm.stop(t)
}

// until waits for news until the condition holds.
func (n *gossipNetwork) until(what string, holds func() bool) {
	n.t.Helper()
	deadline := time.After(time.Minute)
	for !holds() {
		select {
		case <-n.news:
		case <-deadline:
			n.t.Fatalf("waited in vain until %s", what)
		}
	}
}

// sees describes a list: "1 2+ 3-" is 1 alive, 2 left, 3 dead.
func (gm *gossipMember) sees() string {
	var out []string
	for _, m := range gm.List() {
		out = append(out, fmt.Sprint(m.ID)+map[MemberState]string{MemberAlive: "", MemberLeft: "+", MemberDead: "-"}[m.State])
	}
	return strings.Join(out, " ")
}

func (n *gossipNetwork) untilSees(want string, all ...*gossipMember) {
	n.t.Helper()
	for _, p := range all {
		n.until(fmt.Sprintf("%d, which sees %q, sees %q", p.cfg.Self.ID, p.sees(), want), func() bool { return p.sees() == want })
	}
}

func (gm *gossipMember) knows(id uint64) Member {
	for _, m := range gm.List() {
		if m.ID == id {
			return m
		}
	}
	return Member{}
}

// logLines is where a logger writes.
type logLines struct {
	news chan struct{}
	mu   sync.Mutex
	text strings.Builder
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(b)
	signal(l.news)
	return len(b), nil
}

// count returns how many lines have all the words.
func (l *logLines) count(words ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
next:
	for line := range strings.Lines(l.text.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		n++
	}
	return n
}

func TestMembersFindEachOtherAndLeave(t *testing.T) {
	others := goleak.IgnoreCurrent()
	defer func() {
		for begun := time.Now(); goleak.Find(others) != nil; { // the library's end a while after it
			if time.Since(begun) > time.Minute {
				goleak.VerifyNone(t, others)
				return
			}
		}
	}()
	v := newGossipNetwork(t)
	a := v.start(Member{ID: 1, Starts: 7, HTTP: "10.0.0.1:7700", Peer: "10.0.0.1:7701", Zone: "z", Version: "v1", Expect: 3, Shards: 16, Replicas: 3})
	b := v.start(Member{ID: 2}, joining(a))
	c := v.start(Member{ID: 3}, joining(b))
	v.untilSees("1 2 3", a, b, c)
	want := Member{ID: 1, Starts: 7, Name: "n1", HTTP: "10.0.0.1:7700", Peer: "10.0.0.1:7701", Gossip: a.Addr(), Zone: "z", Version: "v1", Expect: 3, Shards: 16, Replicas: 3}
	v.until(fmt.Sprintf("c, which knows a as %+v, knows it as %+v", c.knows(1), want), func() bool { return c.knows(1) == want })
	v.until("others are alive", func() bool { return c.Alive(1) && c.Alive(3) && !c.Alive(9) })
	testkit.Must(t, a.Update(func(m *Member) { m.Cluster, m.HTTP, m.ID, m.Name = "abc", "10.0.0.9:1", 99, "other" }))
	v.until("the update is seen", func() bool { return c.knows(1).Cluster == "abc" && c.knows(1).HTTP == "10.0.0.9:1" })
	if a.knows(1).Name != "n1" {
		t.Fatalf("a node changed its name: %+v", a.List())
	}
	b.stop(t)
	v.untilSees("1 2+ 3", a, c)
	if c.Alive(2) {
		t.Fatal("a node that has left is alive")
	}
	a.stop(t)
	c.stop(t)
}

func TestMembersNoticeACrashAndARestart(t *testing.T) {
	v := newGossipNetwork(t)
	a := v.start(Member{ID: 1})
	b := v.start(Member{ID: 2, Starts: 1}, joining(a))
	v.untilSees("1 2", a, b)
	b.crash(t)
	v.untilSees("1 2-", a)
	again := v.start(Member{ID: 2, Starts: 2}, joining(a))
	v.untilSees("1 2", a, again)
	v.until("a knows the new process", func() bool { return a.knows(2).Starts == 2 && a.knows(2).Gossip == again.Addr() })
}

// The other side comes back at its old address, knowing nobody.
func TestMembersRejoinWhatTheyLost(t *testing.T) {
	v := newGossipNetwork(t)
	a := v.start(Member{ID: 1})
	b := v.start(Member{ID: 2, Starts: 1}, joining(a))
	v.untilSees("1 2", a, b)
	b.crash(t)
	v.untilSees("1 2-", a)
	again := v.start(Member{ID: 2, Starts: 2}, func(c *MembersConfig) { c.Bind = b.Addr() })
	v.untilSees("1 2", a, again)
}

// A node that is not there yet is found when it comes.
func TestMembersJoinLateComers(t *testing.T) {
	v := newGossipNetwork(t)
	b := v.start(Member{ID: 2})
	addr := b.Addr()
	b.stop(t)
	a := v.start(Member{ID: 1}, func(c *MembersConfig) { c.Join = []string{addr} })
	v.until("a says that nobody is there", func() bool { return a.log.count("cannot join", addr) > 0 })
	b = v.start(Member{ID: 2, Starts: 2}, func(c *MembersConfig) { c.Bind = addr })
	v.untilSees("1 2", a, b)
	if n := a.log.count("cannot join"); n != 1 {
		t.Fatalf("said %d times", n)
	}
}

func TestMembersOfTwoClustersDoNotMix(t *testing.T) {
	v := newGossipNetwork(t)
	a := v.start(Member{ID: 1, Cluster: "aaaa"})
	b := v.start(Member{ID: 2, Cluster: "bbbb"}, joining(a))
	for _, p := range []*gossipMember{a, b} {
		v.until("the refusal is said", func() bool { return p.log.count("another cluster", a.Addr(), b.Addr()) > 0 })
	}
	c := v.start(Member{ID: 3}, joining(a, b)) // belongs to none yet, and stands between the two
	v.untilSees("1 2 3", c)
	v.untilSees("1 3", a)
	v.untilSees("2 3", b)
	testkit.Must(t, c.Update(func(m *Member) { m.Cluster = "aaaa" }))
	v.untilSees("1 3", a, c)
	v.untilSees("2", b)
	for _, p := range []*gossipMember{a, b} {
		if n := p.log.count("another cluster", a.Addr(), b.Addr()); n != 1 {
			t.Errorf("%d said the refusal %d times", p.cfg.Self.ID, n)
		}
	}
}

func TestMembersWithDifferentKeys(t *testing.T) {
	key := func(b byte) func(*MembersConfig) {
		return func(c *MembersConfig) { c.Keys = [][]byte{bytes.Repeat([]byte{b}, 32)} }
	}
	v := newGossipNetwork(t)
	a := v.start(Member{ID: 1}, key('a'))
	same := v.start(Member{ID: 2}, key('a'), joining(a))
	other := v.start(Member{ID: 3}, key('x'), joining(a))
	none := v.start(Member{ID: 4}, joining(a))
	v.untilSees("1 2", a, same)
	for _, p := range []*gossipMember{a, other, none} {
		v.until("the key is blamed", func() bool { return p.log.count("level=WARN", "--gossip-key") > 0 })
	}
	v.untilSees("1 2", same)
	if other.sees() != "3" || none.sees() != "4" {
		t.Fatalf("%q %q", other.sees(), none.sees())
	}
	for _, p := range []*gossipMember{a, other, none} {
		if n := p.log.count("level=WARN"); n > 3 {
			t.Errorf("%d warned %d times", p.cfg.Self.ID, n)
		}
		if p.log.count("aaaaaaaa")+p.log.count("xxxxxxxx") > 0 {
			t.Error("a key is in the log")
		}
	}
}

// TestGossipKeysChangeWhileNodesSpeak: the new key goes behind the old one everywhere, then before
// it, then the old one goes. News of a node reaches the other meanwhile; a node that has only the
// old key is not heard at the end.
func TestGossipKeysChangeWhileNodesSpeak(t *testing.T) {
	keys := func(of string) (list [][]byte) {
		for _, b := range []byte(of) {
			list = append(list, bytes.Repeat([]byte{b}, 32))
		}
		return list
	}
	first := func(c *MembersConfig) { c.Keys = keys("o") }
	v := newGossipNetwork(t)
	a := v.start(Member{ID: 1}, first)
	b := v.start(Member{ID: 2}, first, joining(a))
	v.untilSees("1 2", a, b)
	for i, next := range []string{"on", "no", "n"} {
		for _, p := range []*gossipMember{a, b} {
			testkit.Must(t, p.SetKeys(keys(next)))
			zone := fmt.Sprintf("z%d-%d", i, p.cfg.Self.ID)
			testkit.Must(t, p.Update(func(m *Member) { m.Zone = zone }))
			other := map[*gossipMember]*gossipMember{a: b, b: a}[p]
			v.until("news of "+zone, func() bool {
				return slices.ContainsFunc(other.List(), func(m Member) bool { return m.Zone == zone })
			})
		}
	}
	late := v.start(Member{ID: 3}, first, joining(a))
	v.until("the key is blamed", func() bool { return late.log.count("level=WARN", "--gossip-key") > 0 })
	v.untilSees("1 2", a)
	if late.sees() != "3" {
		t.Errorf("%q", late.sees())
	}
	if a.SetKeys(nil) == nil || a.SetKeys(keys("nn")) == nil || a.SetKeys([][]byte{[]byte("short")}) == nil {
		t.Error("bad keys are taken")
	}
}

// TestListenersOnAllAddressesAreReachedWhereGossipIs: of "every address of my machine" another node
// would come to itself.
func TestListenersOnAllAddressesAreReachedWhereGossipIs(t *testing.T) {
	for _, tt := range [][3]string{
		{"[::]:7701", "10.0.0.1:7702", "10.0.0.1:7701"}, {"0.0.0.0:7701", "[fd00::1]:7702", "[fd00::1]:7701"},
		{"10.0.0.2:7701", "10.0.0.1:7702", "10.0.0.2:7701"}, {"n1.example:7701", "10.0.0.1:7702", "n1.example:7701"},
		{"[::]:7701", "", "[::]:7701"}, {"", "10.0.0.1:7702", ""},
	} {
		if got := ReachedAt(tt[0], tt[1]); got != tt[2] {
			t.Errorf("%q, gossip at %q: %q, want %q", tt[0], tt[1], got, tt[2])
		}
	}
	v := newGossipNetwork(t)
	a := v.start(Member{ID: 1, HTTP: "[::]:7700", Peer: "[::]:7701"})
	b := v.start(Member{ID: 2}, joining(a))
	v.untilSees("1 2", b)
	if got := b.List()[0]; got.HTTP != "127.0.7.1:7700" || got.Peer != "127.0.7.1:7701" {
		t.Errorf("%+v", got)
	}
}

// TestMembersAlone: without an address to bind, a node hears nobody and nobody hears it, and all
// else continues.
func TestMembersAlone(t *testing.T) {
	changed := make(chan struct{}, 1)
	m, err := NewMembers(MembersConfig{Self: Member{ID: 1, Name: "a"}, Changed: func() { changed <- struct{}{} }})
	testkit.Must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	<-m.Ready()
	testkit.Must(t, m.Update(func(m *Member) { m.Cluster = "c" }))
	<-changed
	if list := m.List(); len(list) != 1 || list[0].Cluster != "c" || m.Addr() != "" || !m.Alive(1) {
		t.Errorf("%+v at %q", list, m.Addr())
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestMembersBind(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer ln.Close()
	for _, bind := range []string{ln.Addr().String(), "[::]:0"} {
		m, err := NewMembers(MembersConfig{Self: Member{ID: 1, Name: "a"}, Bind: bind})
		testkit.Must(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Run(ctx); err == nil || !strings.Contains(err.Error(), bind) {
			t.Errorf("%s: %v", bind, err)
		}
		if err := m.Run(ctx); err == nil {
			t.Error("it ran twice")
		}
	}
	v := newGossipNetwork(t)
	p := v.start(Member{ID: 1}, func(c *MembersConfig) { c.Bind, c.Advertise = ":0", "localhost" })
	host, _, err := net.SplitHostPort(p.Addr())
	if err != nil || !net.ParseIP(host).IsLoopback() {
		t.Fatalf("advertises %s: %v", p.Addr(), err)
	}
}

// TestNameThatDoesNotResolveYet: a node whose own name does not resolve runs, and others are told the
// address that it listens at.
func TestNameThatDoesNotResolveYet(t *testing.T) {
	v := newGossipNetwork(t)
	a := v.start(Member{ID: 1}, func(c *MembersConfig) { c.Advertise = "nowhere.invalid" })
	b := v.start(Member{ID: 2}, joining(a))
	v.untilSees("1 2", b)
	v.untilSees("1 2", a)
	if host, _, _ := net.SplitHostPort(a.Addr()); host != "127.0.7.1" {
		t.Errorf("told %s", a.Addr())
	}
	all, own := netip.IPv4Unspecified(), netip.MustParseAddr("127.0.7.1")
	for _, tt := range []struct {
		name string
		bind netip.Addr
		want string
	}{{"localhost", all, "127.0.0.1"}, {"127.0.1.1", all, "127.0.1.1"}, {"LOCALHOST", all, ""}, {"LOCALHOST", own, "127.0.0.1"}, {"nowhere.invalid", own, ""}} {
		ip, doubt := gossipConfig{advertise: tt.name}.advertised(t.Context(), tt.bind, 1)
		if ip != tt.want && ip != "::1" || (doubt != nil) != (tt.want == "") {
			t.Errorf("%s, bound to %s: %q, %v", tt.name, tt.bind, ip, doubt)
		}
	}
	for _, bind := range []netip.Addr{all, netip.IPv6Unspecified()} {
		if ip, err := machineAddress(bind); err == nil && ((ip.To4() != nil) != bind.Is4() || ip.IsLoopback()) {
			t.Errorf("bound to %s: %s", bind, ip)
		}
	}
}

func TestMembersConfigFaultsAtOnce(t *testing.T) {
	_, err := NewMembers(MembersConfig{Self: Member{Name: "a"}, Bind: "nowhere", Join: []string{"x"}, Keys: [][]byte{[]byte("short")}})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"id 0", "nowhere", "address x", "5 bytes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func TestMembersKeepTheLatestStart(t *testing.T) {
	log := &logLines{news: make(chan struct{}, 1)}
	m, err := NewMembers(MembersConfig{Self: Member{ID: 1, Starts: 3, Name: "a"}, Bind: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(log, nil))})
	testkit.Must(t, err)
	node := func(v Member) gossipNode {
		meta, err := encodeMember(v, false)
		testkit.Must(t, err)
		return gossipNode{name: nodeName(v), addr: "127.0.0.1:1", meta: meta}
	}
	p := &gossipMember{Members: m}
	older, newer := node(Member{ID: 2, Starts: 1, Name: "b"}), node(Member{ID: 2, Starts: 2, Name: "b"})
	m.nodeSeen(newer)
	m.nodeSeen(older)
	m.nodeLost(older)
	if got := p.knows(2); got.Starts != 2 || p.sees() != "1 2" {
		t.Fatalf("%s: %+v", p.sees(), got)
	}
	m.nodeLost(newer)
	if p.sees() != "1 2-" {
		t.Fatal(p.sees())
	}
	m.nodeSeen(node(Member{ID: 1, Starts: 2, Name: "a"})) // the others' memory of this node
	if len(m.notices) != 0 {
		t.Fatal("a former start of this node is taken for a twin")
	}
	m.nodeSeen(node(Member{ID: 1, Starts: 3, Name: "copy"}))
	if n := <-m.notices; !strings.Contains(n.text, "data directory") || p.knows(1).Name != "a" {
		t.Fatalf("%+v %s", n, p.sees())
	}
	for id := uint64(10); id < 10+maxGone+5; id++ {
		n := node(Member{ID: id, Name: "x"})
		m.nodeSeen(n)
		m.nodeLost(n)
	}
	if list := m.List(); len(list) != 1+maxGone || p.knows(2).ID != 0 || p.knows(15).ID == 0 {
		t.Fatalf("%d remembered; the longest gone: %+v", len(list), p.knows(2))
	}
	for id := uint64(1e6); len(m.seen) < maxMembers; id++ {
		m.nodeSeen(node(Member{ID: id, Name: "x"}))
	}
	if err := m.admit(node(Member{ID: 5e6, Name: "x"})); err == nil {
		t.Fatal("a node too many was let in")
	}
	if err := m.admit(node(Member{ID: 1e6, Name: "x"})); err != nil {
		t.Fatalf("a known node was kept out: %v", err)
	}
}

func TestMembersLogOneKindOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logLines{news: make(chan struct{}, 1)}
		m, err := NewMembers(MembersConfig{Self: Member{ID: 1, Name: "a"}, Bind: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(log, nil))})
		testkit.Must(t, err)
		end, done := make(chan struct{}), make(chan struct{})
		go func() { defer close(done); m.deliver(end) }()
		for want := 1; want <= 2; want++ {
			for range maxNotices {
				m.queueNotice(notice{level: slog.LevelWarn, kind: "k", text: "trouble"})
			}
			synctest.Wait()
			if n := log.count("trouble"); n != want {
				t.Fatalf("said %d times, want %d", n, want)
			}
			<-time.After(noticeRepeat + time.Second)
		}
		close(end)
		<-done
	})
}

func TestMembersExplainTheLibrary(t *testing.T) {
	for line, want := range map[string]string{
		"[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=10.1.2.3:55": hintKey,
		"[ERR] memberlist: failed to receive: encryption is configured but remote state is not encrypted":       hintKey,
		"[WARN] memberlist: Binding to public address without encryption!":                                      "public address",
		"[DEBUG] memberlist: Stream connection from=10.1.2.3:55":                                                "gossip: Stream connection",
	} {
		n := explain(line)
		if !strings.Contains(n.text, want) {
			t.Errorf("%s: %+v", line, n)
		}
		if strings.Contains(n.kind, ":55") {
			t.Errorf("each connection is a kind of its own: %q", n.kind)
		}
	}
}

func TestMetadataAtItsLargest(t *testing.T) {
	host := strings.Repeat("h", maxAddress-len(":65535"))
	v := Member{
		ID: maxNodeID - 1, Starts: 1<<32 - 1, Name: strings.Repeat("n", 63), HTTP: host + ":65535", Peer: host + ":65534",
		Zone: strings.Repeat("z", maxZone), Version: strings.Repeat("v", metaMaxVersion), Cluster: strings.Repeat("0f", 16),
		Level: 99, Expect: 99, Shards: 65535, Replicas: 7,
	}
	b, err := encodeMember(v, true)
	testkit.Must(t, err)
	got, leaving, err := decodeMember(gossipNode{meta: b})
	if err != nil || !leaving || got != v {
		t.Fatalf("%d bytes: %+v %v", len(b), got, err)
	}
	v.Peer = "x" + host // shares nothing with HTTP
	if b, err := encodeMember(v, false); err == nil || !strings.Contains(err.Error(), "shorten") {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	m, err := NewMembers(MembersConfig{Self: Member{ID: 1, Name: "a"}, Bind: "127.0.0.1:0"})
	testkit.Must(t, err)
	before := m.List()
	if err := m.Update(func(m *Member) { m.Zone, m.HTTP, m.Cluster = "z", v.HTTP, strings.Repeat("c", metaMaxCluster+1) }); err == nil {
		t.Fatal("took a cluster id that is too long")
	}
	if after := m.List(); !reflect.DeepEqual(after, before) {
		t.Fatalf("a refused update left %+v", after)
	}
}

func TestMetadataRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := Member{
			ID: rapid.Uint64Range(1, maxNodeID-1).Draw(t, "id"), Starts: rapid.Uint32().Draw(t, "starts"),
			Name: rapid.StringMatching(namePattern.String()).Draw(t, "name"),
			HTTP: rapid.StringMatching(`[a-z0-9.]{0,30}:[0-9]{1,5}`).Draw(t, "http"), Peer: rapid.StringMatching(`[a-z0-9.]{0,30}:[0-9]{1,5}`).Draw(t, "peer"),
			Level: feature.Level(rapid.IntRange(0, 99).Draw(t, "level")),
			Zone:  rapid.StringMatching(`[a-z]{0,64}`).Draw(t, "zone"), Version: rapid.StringMatching(`[!-~]{0,32}`).Draw(t, "version"),
			Cluster: rapid.OneOf(rapid.StringMatching(`[0-9a-f]{32}`), rapid.StringMatching(`[0-9A-F]{32}`), rapid.StringMatching(`[!-~]{0,64}`)).Draw(t, "cluster"),
			Expect:  rapid.IntRange(0, 99).Draw(t, "expect"), Shards: rapid.IntRange(0, 65535).Draw(t, "shards"), Replicas: rapid.IntRange(0, 7).Draw(t, "replicas"),
			Gossip: "127.0.0.1:7702",
		}
		leaving := rapid.Bool().Draw(t, "leaving")
		b, err := encodeMember(v, leaving)
		testkit.Must(t, err)
		later := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "fields of a later version")
		got, gotLeaving, err := decodeMember(gossipNode{addr: v.Gossip, meta: append(b, later...)})
		if err != nil || got != v || gotLeaving != leaving {
			t.Fatalf("%+v\n%+v\n%v %v", v, got, gotLeaving, err)
		}
		if _, _, err := decodeMember(gossipNode{meta: b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]}); err == nil {
			t.Fatal("cut metadata was read")
		}
	})
}

func FuzzDecodeMember(f *testing.F) {
	for _, v := range []Member{{ID: 1, Name: "a"}, {ID: 1 << 39, Name: "b", HTTP: "h:1", Peer: "h:2", Cluster: strings.Repeat("0f", 16), Expect: 3}} {
		b, err := encodeMember(v, true)
		testkit.Must(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, leaving, err := decodeMember(gossipNode{meta: b})
		if err != nil {
			return
		}
		again, err := encodeMember(v, leaving)
		if err != nil {
			return // texts at their bounds that share nothing: more than would be sent
		}
		if w, l, err := decodeMember(gossipNode{meta: again}); err != nil || l != leaving || w != v {
			t.Fatalf("%+v\n%+v\n%v", v, w, err)
		}
	})
}

func (m *Members) Alive(id uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.seen[id]
	return id == m.self.ID || ok && s.member.State == MemberAlive
}
