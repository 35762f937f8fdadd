package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"carillon/ring"
	"carillon/shard"
	"carillon/transport/api"
	"carillon/transport/callback"
	"carillon/wal"
)

// drainTime is how long a stopping node waits for calls in flight.
const drainTime = 30 * time.Second

// failureGrace is how long a node whose log failed goes on so that what waits is refused: it must be gone within a second.
const failureGrace = 250 * time.Millisecond

// Node is one Carillon node. Two nodes in one process share nothing.
type Node struct {
	cfg  Config
	auth *api.Auth
	addr atomic.Pointer[net.TCPAddr]
}

// New checks the configuration, all of it at once. It reads the auth file, but touches neither disk nor network otherwise.
func New(cfg Config) (*Node, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg}
	if cfg.AuthFile != "" {
		auth, err := api.LoadAuth(cfg.AuthFile)
		if err != nil {
			return nil, err
		}
		n.auth = auth
	}
	return n, nil
}

// Addr is the address of the API once Run has bound it, "" before.
func (n *Node) Addr() string {
	if a := n.addr.Load(); a != nil {
		return a.String()
	}
	return ""
}

// Reload reads the auth file again; after an error the tokens from before still hold.
func (n *Node) Reload() error {
	if n.auth == nil {
		return nil
	}
	return n.auth.Reload()
}

// parts are what runs inside a node, each owned and waited for by Run.
type parts struct {
	host   *shard.Host
	pool   *callback.Pool
	engine *engine
	server *api.Server
}

// Run serves until the context ends, then drains: intake stops, requests are answered, calls in flight end (at most 30 s), the
// log is closed. It returns nil after a clean stop. When the log fails it returns within a moment, and the process must end:
// requests and calls that hang may still be under way.
func (n *Node) Run(ctx context.Context) error {
	fsys := wal.OSFS{}
	if err := fsys.MkdirAll(n.cfg.DataDir); err != nil {
		return fmt.Errorf("node: make the data directory: %w", err)
	}
	lock, err := wal.LockDir(fsys, n.cfg.DataDir)
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	defer lock.Close()
	id, err := claimIdentity(fsys, n.cfg.DataDir, n.cfg.Shards)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", n.cfg.HTTP)
	if err != nil {
		return fmt.Errorf("node: bind the API: %w", err)
	}
	defer ln.Close()
	n.addr.Store(ln.Addr().(*net.TCPAddr))
	p, err := n.assemble(fsys, id)
	if err != nil {
		return err
	}
	return n.serve(ctx, fsys, id, ln, p)
}

// assemble wires the parts; it starts none of them.
func (n *Node) assemble(fsys wal.FS, id identity) (*parts, error) {
	own := netip.MustParseAddrPort(n.addr.Load().String())
	policy := callback.Policy{
		AllowPrivate: own.Addr().Unmap().IsLoopback(),
		Allow:        n.cfg.CallbackAllow,
		Own:          []netip.AddrPort{own},
	}
	pool, err := callback.New(callback.Config{UserAgent: "Carillon/" + n.cfg.Version, Policy: policy, Drain: time.Second})
	if err != nil {
		return nil, err
	}
	var host *shard.Host
	m := newMetrics(func() *shard.Host { return host }, pool)
	topics := ring.NewTopics(func() { host.TopicsChanged() })
	clock := shard.NewSystemClock()
	limit := n.cfg.MemoryLimit
	if limit == 0 {
		limit = memoryLimit()
	}
	host, err = shard.New(shard.Config{
		Shards: id.Shards, Workers: n.cfg.Workers, Node: id.NodeID, Owner: shard.NewOwner(id.NodeID, id.Starts),
		Seed: rand.Uint64(), Found: !id.Founded,
		FS: fsys, Dir: n.cfg.DataDir, Log: wal.Options{Observe: m.log()},
		Clock: clock, Topics: topics, Dispatcher: &dispatcher{pool, clock}, Machine: topics, Observer: m,
		Logger: n.cfg.Logger, MemoryLimit: limit,
	})
	if err != nil {
		return nil, err
	}
	e := &engine{host: host, topics: topics, shards: id.Shards}
	server, err := api.New(api.Config{
		Engine: e, Version: n.cfg.Version, Logger: n.cfg.Logger, Auth: n.auth, CheckURL: policy.CheckURL,
		Metrics: recovered(host, fasthttpadaptor.NewFastHTTPHandler(promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))),
	})
	if err != nil {
		return nil, err
	}
	return &parts{host: host, pool: pool, engine: e, server: server}, nil
}

// recovered answers 503 until the host has read its log: before that there is nothing to count.
func recovered(host *shard.Host, next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		select {
		case <-host.Started():
			next(ctx)
		default:
			ctx.Error(shard.ErrRecovering.Error(), fasthttp.StatusServiceUnavailable)
		}
	}
}

// serve starts the parts from the inside out, and stops them from the outside in.
func (n *Node) serve(ctx context.Context, fsys wal.FS, id identity, ln net.Listener, p *parts) error {
	detached := context.WithoutCancel(ctx)
	apiCtx, stopAPI := context.WithCancel(ctx)
	hostCtx, stopHost := context.WithCancel(detached)
	poolCtx, stopPool := context.WithCancel(detached)
	defer stopAPI()
	defer stopHost()
	defer stopPool()

	var poolDone, hostDone, apiDone, choresDone sync.WaitGroup
	var poolErr, hostErr, apiErr error
	failed := make(chan struct{})
	poolDone.Go(func() { poolErr = p.pool.Run(poolCtx) })
	hostDone.Go(func() {
		if hostErr = p.host.Run(hostCtx); hostErr != nil {
			close(failed)
		}
		stopAPI() // a node whose log failed answers nothing more
	})
	apiDone.Go(func() {
		apiErr = p.server.Serve(apiCtx, ln)
		stopAPI()
	})
	choresDone.Go(func() { n.chores(apiCtx, fsys, id, p) })

	<-apiCtx.Done()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		apiDone.Wait() // intake has stopped, requests are answered
		choresDone.Wait()
		drainCtx, cancel := context.WithTimeout(detached, drainTime)
		defer cancel()
		p.host.Drain(drainCtx) // calls in flight end and their outcomes are in the log
		stopHost()
		hostDone.Wait()
		stopPool() // nobody is left to start a call
		poolDone.Wait()
	}()
	select {
	case <-stopped:
	case <-failed:
		// Nothing that is still under way can be kept, and a slow client must not hold the process: the rest is abandoned.
		select {
		case <-stopped:
		case <-time.After(failureGrace):
			return hostErr
		}
	}
	if errors.Is(poolErr, context.Canceled) {
		poolErr = nil
	}
	return errors.Join(hostErr, apiErr, poolErr)
}

// chores marks the directory as founded once the groups are on disk, and keeps the topics tidy.
func (n *Node) chores(ctx context.Context, fsys wal.FS, id identity, p *parts) {
	if !id.Founded && p.ready(ctx) {
		id.Founded = true
		if err := id.write(fsys, n.cfg.DataDir); err != nil {
			n.cfg.Logger.Error("the founding was not noted; it is tried again at the next start", "error", err)
		}
	}
	newJanitor(p.engine, n.cfg.Logger).run(ctx)
}

// ready waits until the host serves; false when the context ends first.
func (p *parts) ready(ctx context.Context) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for p.host.NotReady() != nil {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}
