// Package demo shows the purpose of Carillon in half a minute: it runs real node processes, loads
// them with timers, kills the node that leads most shards with kill -9 while the user watches,
// starts it again, and gives an account of every timer.
//
// Run does it all, and cleans up in any case. The nodes are processes of this very program; nothing
// is shared with them but HTTP. Load, receiver and account are package loadtest's, at a rate so low
// that the run shows the cluster and not the machine.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
	"carillon/loadtest"
)

// Config of a run.
type Config struct {
	Nodes    int           // 1–7
	Duration time.Duration // of the whole but for starting and stopping nodes, 5 s at least

	Executable string    // the program whose serve command is a node
	Env        []string  // of the nodes
	Out        io.Writer // the user's screen; that it cannot be written cuts the run short
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
	settleTime  = 4 * time.Second // of the duration is for the last timers to come due
	lookEvery   = 50 * time.Millisecond
	shortOutage = time.Second // of a cluster that can do nothing without the killed node

	operationsPerSecond = 400 // half of them adds
	requestTimeout      = 3 * time.Second
	lostAfter           = 20 * time.Second
	// Of the topic's receiver: a new leader waits out its predecessor's calls.
	callTimeout = time.Second
	topic       = "demo"
)

// Run plays the demo and prints the result. Its error means that it could not be played, never that
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
		return Result{}, fmt.Errorf("demo: make a directory: %w; TMPDIR says where", err)
	}
	// Files that cannot be removed stay in the system's temporary directory.
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &play{config: config, screen: newScreen(config.Out, cancel)}
	if p.cluster, err = newCluster(config, dir); err != nil {
		return Result{}, err
	}
	defer p.cluster.stop()
	result, err := p.run(ctx)
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
	screen  *screen
}

func (p *play) run(ctx context.Context) (r Result, err error) {
	began := time.Now()
	p.screen.event("starting %s and a receiver, data in %s", terminal.Many(int64(p.config.Nodes), "node", "nodes"), p.cluster.dir)
	if err := p.cluster.start(ctx); err != nil {
		return r, err
	}
	p.screen.event("%s ready after %v: %s", terminal.Many(int64(p.config.Nodes), "node", "nodes"), time.Since(began).Round(time.Millisecond), p.cluster.addresses())
	policy := client.Policy{Callback: &client.Callback{Timeout: callTimeout}}
	err = await(ctx, "no node takes the topic", func() (bool, error) {
		_, err := p.cluster.client.PutTopic(ctx, topic, policy)
		if refused, ok := errors.AsType[*client.Problem](err); ok && refused.Status < 500 {
			return false, fmt.Errorf("demo: make the topic: %w", err)
		}
		return err == nil, nil
	})
	if err != nil {
		return r, err
	}
	p.screen.begin()
	defer p.screen.end()
	ctx, stop := context.WithCancelCause(ctx)
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		var err error
		if r.Report, err = loadtest.Run(ctx, p.load(ctx), io.Discard, nil); err != nil {
			stop(err)
		}
	}()
	r.fall, err = p.acts(ctx)
	if err == nil {
		p.screen.event("no more adds; the last timers come due")
		err = p.wait(ctx, loaded)
	}
	stop(err)
	<-loaded
	return r, err
}

// loadTime is how long timers are added.
func (p *play) loadTime() time.Duration {
	return max(p.config.Duration-settleTime, p.config.Duration/2)
}

// load is the load: timers that come due soon, so that some do while a node is down. They are added
// through all nodes, and some are changed or cancelled.
func (p *play) load(ctx context.Context) loadtest.Config {
	return loadtest.Config{Mode: loadtest.ModeMixed, URL: p.cluster.urls(), Topic: topic, Duration: p.loadTime(), Rate: operationsPerSecond,
		Delay: "uniform:100ms-3s", Timeout: requestTimeout, Grace: lostAfter, Seed: rand.Uint64(),
		EachSecond: func(now loadtest.Progress) {
			// With three nodes, 80 columns.
			status := fmt.Sprintf("%3.0f ops/s  overdue %3d  fired %5d  errors %3d", now.Rate, max(now.Due-now.Fired, 0), now.Fired, now.Errors)
			if state := p.cluster.state(ctx); len(state.Nodes) > 0 {
				status += "  lead " + state.leaders()
			}
			p.screen.show(status)
		}}
}

func (p *play) pause(ctx context.Context, d time.Duration) error {
	until, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return p.wait(ctx, until.Done())
}

// wait ends early, with an error, when the context ends or a node that nobody killed.
func (p *play) wait(ctx context.Context, until <-chan struct{}) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-until:
			return context.Cause(ctx)
		case <-look.C:
			if err := p.cluster.unexpectedExits(); err != nil {
				return err
			}
		}
	}
}
