package node

import (
	"context"
	"encoding/json"
	"time"

	"carillon/node/calls"
	"carillon/transport/api/backend"
	"carillon/transport/callback"
)

// methodDestinations asks a node for the receivers that it calls. The answer is JSON, a list of
// backend.Destination: a release leaves out the fields that it does not know. A node of an older
// release refuses the question, and is named as missing.
const methodDestinations uint8 = 14

// destinationsTimeout is how long another node has to list its destinations.
const destinationsTimeout = time.Second

var destinationStates = [...]backend.DestinationState{backend.DestinationClosed, backend.DestinationHalfOpen, backend.DestinationOpen}

// Destinations implements backend.Destinations: it asks all nodes that this one hears.
func (c *core) Destinations(ctx context.Context) (list []backend.Destination, missing []string, err error) {
	nodes := c.member.LiveNodes()
	lists := make([][]backend.Destination, 1+len(nodes))
	failed := make([]bool, len(nodes))
	ctx, cancel := context.WithTimeout(ctx, destinationsTimeout)
	defer cancel()
	var asked group
	for i, node := range nodes {
		asked.Go(func() {
			answer, err := c.p.peers.Call(ctx, node, methodDestinations, nil)
			if err == nil {
				err = json.Unmarshal(answer, &lists[1+i])
			}
			failed[i] = err != nil
		})
	}
	lists[0] = c.destinations()
	asked.Wait()
	for i, node := range nodes {
		if failed[i] {
			missing = append(missing, c.p.self.NameOf(node))
		}
	}
	return backend.MergeDestinations(lists...), missing, nil
}

// destinations are those of this node: the receivers that its pool of calls knows, and how many
// timers of the shards that it leads are due for each.
func (c *core) destinations() (list []backend.Destination) {
	waiting := map[string]int{}
	for to, timers := range c.host.DueFor() {
		waiting[to.(calls.Destination).Name()] += timers
	}
	now := c.p.timers.WallMs()
	ago := func(at time.Time) int64 { return time.Since(at).Milliseconds() }
	if c.p.testClock != nil {
		ago = func(at time.Time) int64 { return now - at.UnixMilli() }
	}
	c.pool.Destinations(func(s callback.DestinationStat) {
		d := backend.Destination{
			Destination: s.Destination, State: destinationStates[s.Breaker], Calls: s.Permits, Waiting: waiting[s.Destination],
			LatencyUs: s.Latency.Microseconds(), LastError: s.LastError, Failures: s.InRow, MoreTopics: s.MoreTopics,
		}
		for _, name := range s.Topics {
			if _, there := c.topics.Here(name); there { // it may have been deleted since
				d.Topics = append(d.Topics, name)
			}
		}
		if !s.Since.IsZero() {
			d.SinceMs = now - ago(s.Since)
		}
		if !s.FailedAt.IsZero() {
			d.FailedMs = s.FailedAt.UnixMilli()
		}
		if d.State != backend.DestinationClosed {
			d.Nodes = []string{c.p.cfg.Name}
		}
		if d.State == backend.DestinationOpen {
			d.NextProbeMs = now + s.ProbeIn.Milliseconds()
		}
		list = append(list, d)
	})
	return list
}

// answerDestinations lists this node's destinations for another one.
func (c *core) answerDestinations() ([]byte, error) {
	if !c.started() {
		return nil, errNotYet
	}
	return json.Marshal(c.destinations())
}
