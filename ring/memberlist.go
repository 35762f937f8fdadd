package ring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// gossipLabel is on every packet, so that another program's memberlist on the same port is refused.
// It is not the cluster's id: a node that joins cannot know that before it has spoken to another.
// The alive and merge delegates keep clusters apart instead (see Members.admit).
const gossipLabel = "carillon"

const gossipTCPTimeout = 3 * time.Second

// gossipNode is one process as the library sees it. name is unique among all processes there ever
// were: see nodeName.
type gossipNode struct {
	name, addr string
	meta       []byte // valid during the call only
}

type gossipConfig struct {
	node      string
	bind      string   // host:port
	advertise string   // host; empty: the bound one
	keys      [][]byte // the first encrypts
	pace      Pace
	debug     func() bool // whether anybody reads debug lines
}

// gossip owns a running memberlist.
type gossip struct {
	list    *memberlist.Memberlist
	keyring *memberlist.Keyring // nil without keys
	addr    string
	cancel  context.CancelFunc // ends dials and the connections they made

	mu     sync.Mutex
	closed bool
}

// startGossip binds and starts; ctx ends the dials of the library, not the gossip.
func startGossip(ctx context.Context, c gossipConfig, events *Members) (*gossip, error) {
	bind, err := resolveOne(ctx, c.bind)
	if err != nil {
		return nil, err
	}
	if bind.Addr().IsUnspecified() && bind.Addr().Is6() && c.advertise == "" {
		return nil, fmt.Errorf("%s stands for every address of this machine: set --advertise to the one that other nodes reach", bind)
	}
	logger := log.New(libraryLog{events, c.debug}, "", 0)
	transport, err := listen(bind, logger)
	if err != nil {
		return nil, err
	}
	port := transport.GetAutoBindPort()
	advertise, doubt := c.advertised(ctx, bind.Addr(), port)
	ip, _, err := transport.FinalAdvertiseAddr(advertise, port)
	if err == nil && bind.Addr().Is4() && ip.To4() == nil {
		err = fmt.Errorf("%s is bound, and %s is the only private address here", bind, ip)
	}
	if err != nil && doubt != nil {
		ip, err = machineAddress(bind.Addr())
	}
	if err != nil {
		closeUnread(transport)
		return nil, fmt.Errorf("find the address that other nodes reach (--advertise sets it): %w", errors.Join(err, doubt))
	}
	if doubt != nil {
		events.queueNotice(notice{slog.LevelWarn, "advertise", "gossip: the name to advertise is no address of this machine here: others are told one that is",
			[]any{"advertise", c.advertise, "told", ip.String(), "cause", doubt}})
	}
	g := &gossip{addr: net.JoinHostPort(ip.String(), strconv.Itoa(port))}
	events.bound(g.addr)

	ctx, g.cancel = context.WithCancel(ctx)
	conf := gossipTuning(c.pace)
	conf.Name, conf.Logger = c.node, logger
	if len(c.keys) > 0 {
		if g.keyring, err = memberlist.NewKeyring(c.keys, c.keys[0]); err != nil {
			g.cancel()
			closeUnread(transport)
			return nil, err
		}
		conf.Keyring = g.keyring
	}
	conf.BindAddr, conf.BindPort = bind.Addr().String(), port
	conf.AdvertiseAddr, conf.AdvertisePort = ip.String(), port
	conf.Transport = boundTransport{transport, ctx}
	d := delegates{events}
	conf.Delegate, conf.Events, conf.Alive, conf.Merge = d, d, d, d
	if g.list, err = memberlist.Create(conf); err != nil {
		g.cancel()
		closeUnread(transport)
		return nil, err
	}
	return g, nil
}

// gossipTuning starts from the library's settings for a local network.
func gossipTuning(pace Pace) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Label = gossipLabel
	c.TCPTimeout = gossipTCPTimeout // a full exchange of 1,000 nodes is some 600 KB
	c.ProbeInterval, c.ProbeTimeout = pace.Probe, pace.Probe/2
	c.GossipInterval = pace.Gossip
	c.PushPullInterval = pace.PushPull
	c.GossipToTheDeadTime = 30 * pace.Probe
	// A node's name has its starts in it, so a known name at a new address is a data directory that
	// was moved or restored: it may have the name once nobody has answered to it for a while.
	c.DeadNodeReclaimTime = 30 * pace.Probe
	// Messages are small; not worth the code that unpacks a stranger's bytes.
	c.EnableCompression = false
	return c
}

// listen binds TCP and UDP on one port; with port 0 the kernel's choice for TCP may be taken for
// UDP, so it tries again.
func listen(bind netip.AddrPort, logger *log.Logger) (*memberlist.NetTransport, error) {
	tries := 1
	if bind.Port() == 0 {
		tries = 10
	}
	conf := memberlist.NetTransportConfig{BindAddrs: []string{bind.Addr().String()}, BindPort: int(bind.Port()), Logger: logger}
	var err error
	for range tries {
		var t *memberlist.NetTransport
		if t, err = memberlist.NewNetTransport(&conf); err == nil {
			return t, nil
		}
	}
	return nil, err
}

// closeUnread closes a transport that nobody reads: its listeners could be waiting to hand
// something over.
func closeUnread(t *memberlist.NetTransport) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = t.Shutdown() // its error is always nil
	}()
	for {
		select {
		case conn := <-t.StreamCh():
			conn.Close()
		case <-t.PacketCh():
		case <-done:
			return
		}
	}
}

// join exchanges everything known with the node at addr (IP:port).
func (g *gossip) join(addr string) error {
	g.mu.Lock()
	closed := g.closed
	g.mu.Unlock()
	if closed {
		return errors.New("gossip is shut down")
	}
	_, err := g.list.Join([]string{addr})
	return err
}

// publish sends this node's new metadata to everybody. It waits until that has gone out, at most
// for the given time.
func (g *gossip) publish(limit time.Duration) error {
	return g.list.UpdateNode(limit)
}

// setKeys is for packets that are sent and received from now on. It is not called twice at a time.
func (g *gossip) setKeys(keys [][]byte) error {
	for _, key := range keys {
		if err := g.keyring.AddKey(key); err != nil { // one that is there stays
			return err
		}
	}
	// The last one that is used stands first, and the old keys end up last. RemoveKey writes into
	// a list that readers may hold, unless it takes away its last element.
	for _, key := range slices.Backward(keys) {
		if err := g.keyring.UseKey(key); err != nil {
			return err
		}
	}
	old := slices.Clone(g.keyring.GetKeys()[len(keys):])
	for _, key := range slices.Backward(old) {
		if err := g.keyring.RemoveKey(key); err != nil {
			return err
		}
	}
	return nil
}

// leave announces that this node leaves. It waits until that has gone out, at most for the given
// time.
func (g *gossip) leave(limit time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil // the library panics
	}
	return g.list.Leave(limit)
}

// shutdown stops without announcing it. It may be called again.
func (g *gossip) shutdown() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.cancel()
	_ = g.list.Shutdown() // idempotent; its error is always nil
}

var errOwnName = errors.New("it resolves to loopback")

// advertised is the IP of the name to advertise. It is empty, with the reason, for one that does not
// resolve yet, as where names of containers are published once they run, and for one that is
// loopback on its own machine, as Debian's /etc/hosts has it. The name itself goes to others as it
// is.
func (c gossipConfig) advertised(ctx context.Context, bind netip.Addr, port int) (ip string, doubt error) {
	if c.advertise == "" {
		return "", nil
	}
	a, err := resolveOne(ctx, net.JoinHostPort(c.advertise, strconv.Itoa(port)))
	if err != nil {
		return "", err
	}
	_, notIP := netip.ParseAddr(c.advertise)
	if a.Addr().IsLoopback() && bind.IsUnspecified() && notIP != nil && c.advertise != "localhost" {
		return "", errOwnName
	}
	return a.Addr().String(), nil
}

// machineAddress is the first address of this machine's interfaces of the family of bind, private or
// not.
func machineAddress(bind netip.Addr) (net.IP, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && (n.IP.To4() != nil) == bind.Is4() {
			return n.IP, nil
		}
	}
	return nil, errors.New("this machine has no address but loopback")
}

// boundTransport ends the dials and dialled connections of the library when its context ends; the
// library itself would sit them out, and a node that stops would wait for an unreachable one.
type boundTransport struct {
	*memberlist.NetTransport
	ctx context.Context
}

func (t boundTransport) DialAddressTimeout(a memberlist.Address, limit time.Duration) (net.Conn, error) {
	dialer := net.Dialer{Timeout: limit}
	conn, err := dialer.DialContext(t.ctx, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	return boundConn{conn, context.AfterFunc(t.ctx, func() { _ = conn.Close() })}, nil
}

type boundConn struct {
	net.Conn
	stop func() bool
}

func (c boundConn) Close() error {
	c.stop()
	return c.Conn.Close()
}

// delegates has the library's five callback interfaces call Members, mostly under the library's
// lock: that copies and hands off, and never calls back into gossip.
type delegates struct{ events *Members }

func (d delegates) node(n *memberlist.Node) gossipNode {
	return gossipNode{name: n.Name, addr: n.Address(), meta: n.Meta}
}

func (d delegates) NodeMeta(int) []byte                  { return d.events.metadata() }
func (d delegates) NotifyMsg([]byte)                     {}
func (d delegates) GetBroadcasts(_, _ int) [][]byte      { return nil }
func (d delegates) LocalState(bool) []byte               { return nil }
func (d delegates) MergeRemoteState([]byte, bool)        {}
func (d delegates) NotifyAlive(n *memberlist.Node) error { return d.events.admit(d.node(n)) }
func (d delegates) NotifyJoin(n *memberlist.Node)        { d.events.nodeSeen(d.node(n)) }
func (d delegates) NotifyUpdate(n *memberlist.Node)      { d.events.nodeSeen(d.node(n)) }
func (d delegates) NotifyLeave(n *memberlist.Node)       { d.events.nodeLost(d.node(n)) }

func (d delegates) NotifyMerge(peers []*memberlist.Node) error {
	var living []gossipNode
	for _, n := range peers {
		if n.State == memberlist.StateAlive || n.State == memberlist.StateSuspect {
			living = append(living, d.node(n))
		}
	}
	return d.events.admitAny(living)
}

// libraryLog takes the library's log lines. Most are for debugging. A line on which an operator can
// act is replaced by a text for the operator.
type libraryLog struct {
	events *Members
	debug  func() bool
}

var _ io.Writer = libraryLog{}

// Write is called under the library's locks.
func (l libraryLog) Write(line []byte) (int, error) {
	if n := explain(string(line)); n.level > slog.LevelDebug || l.debug() {
		l.events.queueNotice(n)
	}
	return len(line), nil
}

// explanations of the library's lines, by a text that they contain; the first that fits.
var explanations = []struct{ has, text string }{
	{"public address", "gossip: bound to a public address without a key (--gossip-key): anybody who reaches the port can join"},
	{"crypt", hintKey},
	{"No installed keys", hintKey},
	{"unacceptable label", "gossip: the gossip port receives packets that are not Carillon's"},
	{"Failed to decode", "gossip: unreadable messages: the sender has a gossip key and this node has none (--gossip-key), or it is not Carillon"},
	{"not supported", "gossip: unreadable messages: the sender has a gossip key and this node has none (--gossip-key), or it is not Carillon"},
	{"Conflicting address", "gossip: two processes claim to be the same start of the same node; was a data directory copied?"},
	{"UDP probes failed", "gossip: a node answers over TCP but not over UDP; the gossip port must be open for both"},
	{"queue full", "gossip: messages come faster than they can be handled, some are dropped"},
	{"Too many pending push/pull", "gossip: too many full exchanges at once, some are refused"},
}

const hintKey = "gossip: nodes cannot read each other: every node needs the same key (--gossip-key)"

var (
	logPrefix = regexp.MustCompile(`^\[[A-Z]+\] (memberlist: )?`)
	// Without the port, which is another one for each connection.
	logSender = regexp.MustCompile(`from=(\S+):\d+`)
)

func explain(line string) notice {
	line = logPrefix.ReplaceAllString(strings.TrimSpace(line), "")
	for _, e := range explanations {
		if !strings.Contains(line, e.has) {
			continue
		}
		from := ""
		if m := logSender.FindStringSubmatch(line); m != nil {
			from = m[1]
		}
		return notice{level: slog.LevelWarn, kind: e.text + from, text: e.text, detail: []any{"cause", line}}
	}
	return notice{level: slog.LevelDebug, text: "gossip: " + line}
}
