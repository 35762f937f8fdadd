// Package demo shows the purpose of Carillon in half a minute: it runs real node processes and a
// receiver, loads them with timers, kills the node that leads a busy shard with kill -9 while the
// user watches, starts it again, and gives an account of every timer.
//
// Run does it all, and cleans up in any case. The nodes are processes of this very program; nothing
// is shared with them but HTTP. The account is the book: every timer is entered before it is sent,
// and every call is judged by it.
//
// It is no load test (see loadtest for that): the rate is low, so that it shows the cluster and not
// the machine.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"carillon/loadtest/sink"
)

// Config of a run.
type Config struct {
	Nodes    int           // 1–7
	Duration time.Duration // of the whole but for starting and stopping nodes, 5 s at least

	Executable string    // the program whose serve command is a node
	Env        []string  // of the nodes
	Out        io.Writer // the user's screen
}

// Bounds of a Config.
const (
	MaxNodes    = 7
	MinDuration = 5 * time.Second
)

// ErrConfig marks an error of Run that is a fault of its configuration.
var ErrConfig = errors.New("demo: bad configuration")

// ErrCutShort is Run's error when the context ended first.
var ErrCutShort = errors.New("demo: cut short")

const (
	settleTime  = 4 * time.Second  // of the duration is for the last timers to come due
	drainLimit  = 20 * time.Second // beyond their due time, then they are lost
	lookEvery   = 50 * time.Millisecond
	shortOutage = time.Second // of a cluster that can do nothing without the killed node
)

// Run plays the demo and prints the result. Its error says that it could not be played, never that
// timers were lost: see Result.Failures.
func Run(ctx context.Context, config Config) (Result, error) {
	if config.Nodes < 1 || config.Nodes > MaxNodes {
		return Result{}, fmt.Errorf("%w: %d nodes are not within 1 to %d", ErrConfig, config.Nodes, MaxNodes)
	}
	if config.Duration < MinDuration {
		return Result{}, fmt.Errorf("%w: %v is less than %v", ErrConfig, config.Duration, MinDuration)
	}
	dir, err := os.MkdirTemp("", "carillon-demo-")
	if err != nil {
		return Result{}, fmt.Errorf("demo: make a directory: %w", err)
	}
	// Files that cannot be removed stay in the system's temporary directory.
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithCancel(ctx) // ends the rest when an error returns early
	defer cancel()

	p := &play{config: config, book: newBook(), screen: newScreen(config.Out)}
	receiver := sink.NewServer("127.0.0.1:0", p.book.deliver)
	address, err := receiver.Listen()
	if err != nil {
		return Result{}, err
	}
	receiving, stopReceiving := context.WithCancel(context.WithoutCancel(ctx))
	received := make(chan struct{})
	go func() {
		defer close(received)
		_ = receiver.Run(receiving) // if it ends early, calls are lost, and the result says so
	}()
	defer func() { stopReceiving(); <-received }()

	p.cluster, err = newCluster(config, dir)
	if err != nil {
		return Result{}, err
	}
	defer p.cluster.stop()
	result, err := p.run(ctx, "http://"+address+"/")
	if ctx.Err() != nil {
		return Result{}, ErrCutShort
	}
	if err != nil {
		return Result{}, err
	}
	result.print(config.Out)
	return result, nil
}

// play is one run's state.
type play struct {
	config  Config
	cluster *cluster
	book    *book
	screen  *screen
	load    *load
	fall    fall
}

// fall is the kill of a node.
type fall struct {
	node *node
	at   time.Time
	led  []int // shards; nil when nobody told
}

func (p *play) run(ctx context.Context, callback string) (Result, error) {
	began := time.Now()
	p.screen.say("starting %s and a receiver, data in %s", count(p.config.Nodes, "node"), p.cluster.dir)
	if err := p.cluster.start(ctx); err != nil {
		return Result{}, err
	}
	p.screen.say("%s ready after %v: %s", count(p.config.Nodes, "node"), time.Since(began).Round(time.Millisecond), p.cluster.addresses())
	p.load = newLoad(p.cluster, p.book)
	if err := p.load.prepare(ctx, callback); err != nil {
		return Result{}, err
	}
	showing, stopShowing := context.WithCancel(ctx)
	shown := make(chan struct{})
	p.screen.begin()
	go func() {
		defer close(shown)
		p.show(showing)
	}()
	defer func() { stopShowing(); <-shown }()

	loading, stopLoading := context.WithCancel(ctx)
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		p.load.run(loading)
	}()
	defer func() { stopLoading(); <-loaded }()

	if err := p.acts(ctx); err != nil {
		return Result{}, err
	}
	stopLoading()
	<-loaded
	p.screen.say("no more adds; the last timers come due")
	p.drain(ctx)
	stopShowing()
	<-shown
	return p.result(), nil
}

// acts are the kill and the return of a node under load.
func (p *play) acts(ctx context.Context) error {
	load := max(p.config.Duration-settleTime, p.config.Duration/2)
	outage := load * 35 / 100
	if p.config.Nodes < 3 {
		outage = shortOutage
	}
	begun := time.Now()
	if err := p.pause(ctx, load*30/100); err != nil {
		return err
	}
	p.kill(ctx)
	if err := p.pause(ctx, outage); err != nil {
		return err
	}
	p.screen.say("%s is started again, on the same data", p.fall.node.name)
	if err := p.fall.node.start(p.cluster.flags(p.fall.node)); err != nil {
		return err
	}
	back := make(chan error, 1)
	go func() {
		err := p.fall.node.awaitReady(ctx)
		if err == nil {
			p.screen.say("%s is back and ready", p.fall.node.name)
		}
		back <- err
	}()
	if err := p.pause(ctx, load-time.Since(begun)); err != nil {
		return err
	}
	return <-back
}

// kill ends the leader of the shard that most timers wait in.
func (p *play) kill(ctx context.Context) {
	shard, waiting := p.book.busiest()
	victim := p.cluster.nodes[0]
	if state := p.cluster.state(ctx); len(state.Nodes) > 0 {
		if leader := p.cluster.named(state.leaderOf(shard)); leader != nil {
			victim = leader
		}
		p.fall.led = state.ledBy(victim.name)
	}
	p.screen.say("shard %d has most timers waiting, %d: kill -9 of %s, which leads it (%s)", shard, waiting, victim.name, count(len(p.fall.led), "shard"))
	p.fall.node, p.fall.at = victim, time.Now()
	p.book.fall(p.fall.at)
	victim.kill()
}

// pause waits, but fails at once when a node ends that nobody killed.
func (p *play) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-look.C:
			if err := p.cluster.deaths(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// drain waits for every call that is owed, and a moment for those that are not.
func (p *play) drain(ctx context.Context) {
	last := p.book.lastDue()
	for p.book.owed() > 0 && time.Since(last) < drainLimit {
		if err := p.pause(ctx, lookEvery); err != nil {
			return
		}
	}
	_ = p.pause(ctx, min(time.Until(last)+settleTime/4, settleTime)) // of the cancelled ones, too
}
