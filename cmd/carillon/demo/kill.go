package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"carillon/client"
)

// fall is the kill of a node, and how soon the others took over.
type fall struct {
	killed   string        // node
	led      int           // shards that it led
	taken    int           // of these, shards that took an add after the kill
	takeover time.Duration // from the kill until the last of them did
}

// acts are the kill and the return of a node under load.
func (p *play) acts(ctx context.Context) (f fall, err error) {
	load := p.loadTime()
	outage := load * 35 / 100
	if p.config.Nodes < 3 {
		outage = shortOutage
	}
	begun := time.Now()
	if err := p.pause(ctx, load*30/100); err != nil {
		return f, err
	}
	state := p.cluster.state(ctx)
	victim, led := p.cluster.busiest(state)
	p.screen.event("%s leads most shards, %d: kill -9 of %s", victim.name, len(led), victim.name)
	watching, stopWatching := context.WithCancel(ctx)
	taken := make(chan fall, 1)
	killed := time.Now()
	victim.kill()
	go func() { taken <- p.cluster.takeover(watching, victim.name, led, killed) }()
	defer func() {
		if err != nil {
			stopWatching()
		}
		// On a slow machine the load is over before the shards take adds again.
		late := time.AfterFunc(lostAfter, stopWatching)
		defer late.Stop()
		f = <-taken
		stopWatching()
	}()

	if err := p.pause(ctx, outage); err != nil {
		return f, err
	}
	p.screen.event("%s is started again, on the same data", victim.name)
	if err := victim.start(p.cluster.flags(victim)); err != nil {
		return f, err
	}
	if err := p.cluster.awaitReady(ctx, victim); err != nil {
		return f, err
	}
	p.screen.event("%s is back and ready", victim.name)
	return f, p.pause(ctx, load-time.Since(begun))
}

const retryPause = 25 * time.Millisecond

// takeover adds a timer to each of the shards, again and again until it is acknowledged or the
// context ends.
func (c *cluster) takeover(ctx context.Context, killed string, led []int, began time.Time) fall {
	f := fall{killed: killed, led: len(led)}
	var probes sync.WaitGroup
	var mu sync.Mutex
	for _, shard := range led {
		probes.Go(func() {
			spec := client.Spec{ID: idIn(shard), Delay: time.Hour, Callback: &client.Callback{URL: "http://127.0.0.1:1/"}}
			for {
				if _, err := c.client.Add(ctx, topic, spec); err == nil {
					break
				}
				select {
				case <-time.After(retryPause):
				case <-ctx.Done():
					return
				}
			}
			mu.Lock()
			defer mu.Unlock()
			f.taken++
			f.takeover = max(f.takeover, time.Since(began))
		})
	}
	probes.Wait()
	return f
}

// idIn is the id of a timer that belongs to a shard.
func idIn(shard int) string {
	for n := 0; ; n++ {
		if id := fmt.Sprintf("takeover-%d", n); client.ShardOf(topic, id, shards) == shard {
			return id
		}
	}
}
