package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"carillon/internal/clocks"
	"carillon/internal/tracing"
	"carillon/internal/vfs"
	"carillon/node/calls"
	"carillon/node/feed"
	"carillon/node/limits"
	"carillon/node/member"
	"carillon/node/metrics"
	"carillon/node/route"
	"carillon/node/task"
	"carillon/ring"
	"carillon/shard"
	"carillon/shard/halt"
	"carillon/shard/table"
	"carillon/timer"
	"carillon/transport/api"
	"carillon/transport/api/timers"
	"carillon/transport/api/web"
	"carillon/transport/callback"
	"carillon/transport/console"
	"carillon/transport/peer"
	"carillon/wal"
)

// drainTime is how long a stopping node waits for calls in flight.
const drainTime = 30 * time.Second

// readyPoll is short compared to the second in which a node should be ready, and costs nothing.
const readyPoll = 20 * time.Millisecond

// failureGrace is how long a node whose log failed continues, to refuse waiting requests. The node
// must end within a second.
const failureGrace = 250 * time.Millisecond

// Node is one Carillon node. Two nodes in one process share nothing.
type Node struct {
	cfg  Config
	mem  limits.Memory
	auth *api.Auth
	tls  *api.TLS
	run  atomic.Pointer[process] // of Run, once it has bound the API
}

// Run returns ErrRemoved when the cluster has removed the node: there is nothing left for it to do.
var ErrRemoved = member.ErrRemoved

// New checks the configuration, all of it at once. It reads the auth file, those of TLS, and the
// mode of the data directory, but touches neither disk nor network otherwise.
func New(cfg Config) (*Node, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.validate(), limits.CheckFiles()); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, mem: limits.FindMemory("/", cfg.MemoryLimit)}
	if cfg.AuthFile != "" {
		auth, err := api.LoadAuth(cfg.AuthFile)
		if err != nil {
			return nil, err
		}
		n.auth = auth
	}
	if cfg.HTTPCert != "" {
		files, err := api.LoadTLS(cfg.HTTPCert, cfg.HTTPKey, cfg.HTTPClientCA)
		if err != nil {
			return nil, err
		}
		if n.tls = files; files.Shared() {
			cfg.Logger.Warn("the private key of the API can be read by other users of this machine; chmod 600 it", "file", cfg.HTTPKey)
		}
	}
	return n, nil
}

// Addr is the address of the API once Run has bound it, "" before.
func (n *Node) Addr() string {
	if p := n.run.Load(); p != nil {
		return p.http.Addr().String()
	}
	return ""
}

// URL is where a client on this machine reaches the API once Run has bound it, "" before.
func (n *Node) URL() string {
	at, err := netip.ParseAddrPort(n.Addr())
	switch {
	case err != nil:
		return ""
	case at.Addr().IsUnspecified(): // of IPv6 it takes IPv4, too, and a machine may have no IPv6
		at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())
	}
	if n.tls != nil {
		return "https://" + at.String()
	}
	return "http://" + at.String()
}

// OnAllInterfaces reports whether other machines reach the API at any address of this one.
func (n *Node) OnAllInterfaces() bool {
	at, err := netip.ParseAddrPort(n.Addr())
	return err == nil && at.Addr().IsUnspecified()
}

// AwaitReady waits until the node serves; false when the context ends first.
func (n *Node) AwaitReady(ctx context.Context) bool {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		if p := n.run.Load(); p != nil && (&engine{p: p}).Ready() == nil {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// MemoryLimit is how much memory the process may use, as New found it.
func (n *Node) MemoryLimit() limits.Memory { return n.mem }

// Run serves until the context ends, then drains: leaderships are handed over, intake stops,
// requests are answered, calls in flight end (at most 30 s), the log is closed. It returns nil
// after a clean stop, ErrRemoved when the cluster has removed the node, and an error that is
// ErrStayDown when no restart would repair it. When the log fails it returns within a moment, and
// the process must end: requests and calls that hang may still be under way.
func (n *Node) Run(ctx context.Context) (err error) {
	defer func() { err = advise(err, n.cfg.DataDir) }()
	var fsys vfs.FS = vfs.OS{}
	if !n.cfg.TestClock.IsZero() {
		fsys = vfs.Unsynced{FS: fsys}
	}
	lock, err := vfs.LockDir(fsys, n.cfg.DataDir)
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	defer lock.Close()
	if err := halt.Check(fsys, n.cfg.DataDir); err != nil {
		return fmt.Errorf("node: %w", stayDown(err))
	}
	cfg := n.cfg
	for {
		err := n.runOn(ctx, fsys, &cfg)
		if !errors.Is(err, errSetAside) {
			return err
		}
	}
}

// runOn is one run on the data directory. After errSetAside it is another node's directory. Ports
// that were picked are in the configuration then: others know this node by them.
func (n *Node) runOn(ctx context.Context, fsys vfs.FS, cfg *Config) (err error) {
	p := &process{cfg: *cfg, log: n.cfg.Logger, fsys: fsys, nonce: rand.Uint64(), failure: make(chan error, 1), trail: n.auditLog()}
	p.bootID = clocks.BootID()
	if err := p.openClocks(); err != nil {
		return err
	}
	if p.testClock != nil {
		defer p.testClock.file.Close()
	}
	if err := p.ownDirectory(); err != nil {
		return stayDown(err)
	}
	aside := p.warnOfAsides()
	if p.http, err = net.Listen("tcp", cfg.HTTP); err != nil {
		return fmt.Errorf("node: bind the API: %w", err)
	}
	defer p.http.Close()
	cfg.HTTP = keepPort(cfg.HTTP, p.http)
	if err := p.listenForPeers(); err != nil {
		return fmt.Errorf("node: bind the port for other nodes: %w", err)
	}
	if p.peer != nil {
		defer p.peer.Close()
		cfg.Peer = keepPort(cfg.Peer, p.peer)
	}
	if err := errors.Join(p.openVault(), p.wire()); err != nil {
		return err
	}
	n.run.Store(p)
	return n.serve(ctx, p, aside)
}

// assemble makes the core of a node that is of a cluster; it starts nothing.
func (n *Node) assemble(p *process, pool *callback.Pool, m *metrics.Metrics) (*core, error) {
	id := p.self.Identity()
	c := &core{p: p, pool: pool}
	c.member = p.self.NewMember(func(ids ...timer.TopicID) { // none if any may have changed
		c.host.TopicsChanged(ids...)
		c.router.TopicsChanged(ids...)
	}, func() { p.membersChanged(c.member.State) },
		func(id timer.ShardID, node uint64) { c.router.NewLeader(id, node) })
	state := c.member.State
	meta := id.Meta
	if id.Founded {
		meta = nil
	}
	observe := wal.Observe{
		Begin: func() { p.self.Health.SyncBegins(p.clock.Mono()) },
		Sync: func(took time.Duration) {
			m.Sync(took)
			p.self.Health.Synced(p.clock.Mono(), took)
		},
	}
	observe.Full = func(lack string) {
		p.self.Health.Waits(lack)
		if lack != "" {
			p.log.Error(lack+": the log waits, and nothing is acknowledged until there is room", "data", n.cfg.DataDir)
		} else {
			p.log.Info("there is room for the log again", "data", n.cfg.DataDir)
		}
	}
	if c.history = newHistoryAdapter(p, state); c.history.store != nil {
		m.History(c.history.store)
	}
	c.feed = c.newFeed(&m.Rates, pool)
	dispatch := calls.Config{
		Pool: pool, NowMs: p.timers.WallMs, Keys: p.vault.keys.Load, Lacks: func(id string) bool { return p.vault.lacks(p.clock.Mono(), id) },
		Tracer: p.tracer, Secret: c.clusterSecret, Place: func(topic timer.TopicID, id string) uint64 { return c.router.PlaceOf(topic, id) }, Auth: n.auth, Guarded: &p.ownAddresses.learned,
	}
	if p.testClock != nil {
		dispatch.Started = &p.testClock.calls
	}
	var err error
	c.host, err = shard.New(shard.Config{
		Shards: id.Shards, Workers: n.cfg.Workers, Node: id.NodeID, Incarnation: table.NewIncarnation(id.NodeID, id.Starts), Seed: rand.Uint64(), Meta: meta, Vet: c.member.Vet,
		FS: p.fsys, Dir: n.cfg.DataDir, Log: wal.Options{Observe: observe, NowMs: p.clock.WallMs},
		Clock: p.timers, ManualClock: p.testClock != nil, Topics: state, Dispatcher: calls.New(dispatch, m), Peers: peerHandler{p}, Placement: c.member, Shares: c.member.Limits,
		Shortages: c.member, Name: n.cfg.Name, NodeName: p.self.NameOf,
		Machine: state, Level: n.cfg.level(), Agreed: state.Level, Observer: m, History: c.history, Watcher: c.feed,
		Logger: n.cfg.Logger, MemoryLimit: n.mem.Mark(), MemoryUse: p.memory.Now, Ready: func(topic timer.TopicID, timers int) { c.router.Ready(topic, timers) },
		NewLeader: func(id timer.ShardID, node uint64) { c.router.NewLeader(id, node) },
		Describe:  timers.Outcomes(),
	})
	if err != nil {
		return nil, err
	}
	c.feed.Attach(c.host)
	c.member.Attach(c.host)
	c.router = route.New(route.Config{
		Self: id.NodeID, Host: c.host, History: c.history, Cluster: c.member, Topic: state.Topic,
		Peers: p.peers, NotSent: peer.ErrNotSent, Tasks: p.tasks, Background: func(run func(context.Context)) { p.tasks.Go(func() { run(p.running) }) },
	})
	c.topics = route.NewTopics(c.router, state.Topics, c.member)
	c.idle = route.NewIdleTopics(c.topics, n.cfg.TopicIdle, p.tasks, p.timers, n.cfg.Logger)
	c.show()
	return c, nil
}

// shown is api.Config.Metrics. It refuses until the host has read its log: before that there is
// nothing to count.
func (p *process) shown(from prometheus.Gatherer) func(ctx *fasthttp.RequestCtx, all bool) error {
	handler := func(from prometheus.Gatherer) fasthttp.RequestHandler {
		return fasthttpadaptor.NewFastHTTPHandler(promhttp.HandlerFor(from, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	}
	every, some := handler(from), handler(metrics.WithoutTopics(from))
	return func(ctx *fasthttp.RequestCtx, all bool) error {
		if c := p.core.Load(); c == nil || !c.started() {
			return p.notYet()
		}
		if all {
			every(ctx)
		} else {
			some(ctx)
		}
		return nil
	}
}

// serve starts the parts from the outside in, so that a node that waits for its cluster can answer
// that it does, and stops them in the order in which nothing is lost: see stop.
func (n *Node) serve(ctx context.Context, p *process, aside int) error {
	policy := n.cfg.where(p.listening())
	allowed := limits.AllowedConnections(n.cfg.MaxConnections, n.cfg.MaxCalls, n.cfg.Logger)
	config := callback.Config{UserAgent: "Carillon/" + n.cfg.Version, Policy: policy, MaxCalls: allowed.Calls, MaxIdleConns: allowed.Idle, Drain: time.Second, Wall: p.clock.Wall, Lease: p.timers.Lease, Logger: n.cfg.Logger}
	if p.testClock != nil {
		config.TestClock = p.testClock.Wall
	}
	pool := callback.New(config)
	var err error
	if p.backups, err = newBackupSchedule(&n.cfg, p.clock.WallMs, p.clock.Fault); err != nil {
		return err
	}
	p.memory = limits.NewMemoryUse(n.mem.Mark(), n.cfg.Logger)
	m := metrics.New(n.cfg.Version, metrics.Sources{
		Host:   func() *shard.Host { return p.core.Load().host },
		State:  func() *ring.State { return p.core.Load().member.State },
		Locked: func() []string { return p.core.Load().member.State.Locked(p.vault.keys.Load(), mostLocked) }, Pool: pool,
	})
	p.tracer = tracing.New(n.cfg.tracing(), n.cfg.Logger)
	n.showParts(p, m, aside)
	p.showState(m)
	p.showResharding(m)
	p.showMoves(m)
	e := &engine{p: p}
	bounds := web.DefaultLimits()
	bounds.Connections, bounds.BodiesBytes, bounds.AnswersBytes = allowed.Clients, n.mem.Budget(), n.mem.Budget()
	server, err := api.New(api.Config{
		Settings: web.Settings{
			Engine: e, Logger: n.cfg.Logger, RefusedURL: func(url string) error { return pool.Policy().CheckURL(url) }, Limits: bounds,
			Clock: p.timers.Wall, ClockFault: p.timers.Fault, Now: p.clock.Wall,
			ClusterError: clusterError, Digest: e.digest, KnownTopicsOnly: n.cfg.KnownTopicsOnly,
		},
		Version: n.cfg.Version, Auth: n.auth, TLS: n.tls,
		Observe: metrics.NewHTTP(m.Registry).Observe,
		Tracer:  p.tracer,
		Hosts:   n.cfg.hosts(),
		Origins: n.cfg.CORSOrigins,
		Audit:   auditor(p.trail),
		Console: n.console(),
		Metrics: p.shown(m.Registry),
	})
	if err != nil {
		return err
	}
	p.ownAddresses = &ownAddresses{pool: pool, forget: server.ForgetURLs}
	s := newServices(ctx, p)
	s.start(s.outer, p.members.Run)
	if p.trail != nil {
		s.start(s.outer, func(ctx context.Context) error { p.trail.Run(ctx); return nil })
	}
	if p.tracer != nil {
		s.start(s.outer, p.tracer.Run)
	}
	s.start(s.outer, func(ctx context.Context) error { return p.peers.Run(ctx, p.peer) })
	s.start(s.calls, pool.Run)
	s.start(s.api, func(ctx context.Context) error { return server.Serve(ctx, p.http) })
	s.start(s.host, func(ctx context.Context) error { return n.runCore(ctx, s, p, pool, m) })
	return s.await()
}

func (n *Node) showParts(p *process, m *metrics.Metrics, aside int) {
	m.Gauge("carillon_memory_needed_bytes", "Memory that the process needs: without what is free, or garbage.", p.memory.Now)
	m.Gauge("carillon_memory_limit_bytes", "Memory that the process may use; adds are refused when a quarter of it, or 128 MiB, is left.", func() int64 { return n.mem.Bytes })
	m.Gauge("carillon_damaged_folders", "Folders in the data directory to which damaged content was moved.", func() int64 { return int64(aside) })
	n.showLogs(m, p.trail)
	n.showCertificates(m, p)
	m.MustRegister(p.backups)
	m.Count("carillon_spans_exported_total", "Spans that the collector of traces has taken.", p.tracer.Exported)
	m.Count("carillon_spans_lost_total", "Spans that the collector did not take, or for which there was no room to wait.", p.tracer.Lost)
}

// console is the page at / of the API; nil: there is none.
func (n *Node) console() *console.Site {
	if n.cfg.NoConsole {
		return nil
	}
	return console.New()
}

// runCore finds the node's cluster and runs its shards.
func (n *Node) runCore(ctx context.Context, s *services, p *process, pool *callback.Pool, m *metrics.Metrics) error {
	select {
	case <-p.members.Ready():
	case <-s.api.ctx.Done():
		return nil
	}
	p.ownAddresses.bound(p.gossipAddress(), p.members.Addr())
	if err := p.self.EnsureMembership(s.api.ctx); err != nil {
		if s.api.ctx.Err() != nil {
			return nil
		}
		s.broken(err)
		return nil
	}
	id := p.self.Identity()
	if err := p.members.Update(func(m *ring.Member) {
		m.Cluster, m.Expect, m.Shards, m.Replicas = id.ClusterID, 0, 0, 0
	}); err != nil {
		return err
	}
	damage := n.runShards(ctx, s, p, pool, m)
	if damage == nil || !s.alive() {
		return nil
	}
	switch err := p.replace(s.api.ctx, damage); {
	case !s.alive():
	case errors.Is(err, errSetAside):
		s.ended(err) // all of it stops: the next run is in this process
	default:
		s.broken(err)
	}
	return nil
}

// runShards runs the node's shards to the end of the process. It returns an error only if the data
// directory is damaged, others may be able to do without it, and nothing has begun.
func (n *Node) runShards(ctx context.Context, s *services, p *process, pool *callback.Pool, m *metrics.Metrics) error {
	c, err := n.assemble(p, pool, m)
	if err != nil {
		s.ended(err)
		return nil
	}
	p.setCore(c)
	life, end := context.WithCancel(ctx)
	defer end()
	intake, endIntake := context.WithCancel(s.api.ctx)
	defer endIntake()
	var work group
	work.Go(func() {
		select {
		case <-c.host.Started():
			// Not before: a start that fails logs one line, with the reason.
			n.cfg.Logger.Info("the memory limit of this process", "limit", n.mem.String(), "from", n.mem.From)
			n.logStarted(c)
			var tasks group
			tasks.Go(func() { c.member.Run(life) })
			tasks.Go(func() { task.Every(life, p.tasks, clockSaveInterval, p.saveClock) })
			tasks.Go(func() { task.Every(life, p.tasks, feed.TidyInterval, c.feed.Tidy) })
			tasks.Go(func() { task.Every(life, p.tasks, feed.PollInterval, c.feed.PollStates) })
			tasks.Go(func() { task.Every(life, p.tasks, feed.SampleInterval, func() { m.Rates.Sample(p.clock.Mono()) }) })
			if p.backups.store != nil {
				tasks.Go(func() { task.Every(life, p.tasks, backupLook, func() { p.backups.look(life, c) }) })
			}
			c.router.Run(life)
			tasks.Wait()
		case <-life.Done():
		}
	})
	work.Go(func() { c.member.MarkFounded(intake) })
	work.Go(func() { c.idle.Run(intake) })
	work.Go(func() { route.NewTurns(c.topics, p.tasks).Run(intake) })
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var writer group
	writer.Go(func() {
		select {
		case <-c.host.Started(): // before, it is not known how long topics keep their entries
		case <-writing.Done():
		}
		c.history.run(writing)
	})
	err = c.host.Run(ctx)
	// A host that never started found damage, and other nodes may have majorities without this one.
	replaceable := !c.started() && p.ports && shard.Damaged(err)
	if replaceable {
		p.setCore(nil)
		end()
		endIntake()
	} else {
		if shard.Damaged(err) {
			err = member.Damaged(err)
		}
		if err != nil {
			s.broken(stayDown(err))
		}
		s.api.cancel()
		s.host.cancel()
	}
	work.Wait()
	stop() // the shards report nothing any more
	writer.Wait()
	if replaceable {
		return err
	}
	return nil
}
