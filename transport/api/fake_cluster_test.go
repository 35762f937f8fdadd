package api

import (
	"context"
	"io"
	"slices"

	"carillon/internal/feature"
	"carillon/timer"
	"carillon/transport/api/backend"
)

// fakeCluster is three nodes of which n3 is drained or down as a test sets it; orders are obeyed at
// once.
type fakeCluster struct {
	view   backend.ClusterView
	detail map[timer.ShardID]backend.ShardView
	err    error // of every change while set
	backup func(context.Context, io.Writer) error

	destinations []backend.Destination
	missing      []string
}

func (c *fakeCluster) Destinations(context.Context) ([]backend.Destination, []string, error) {
	return backend.MergeDestinations(c.destinations), c.missing, c.err
}

func newFakeCluster() *fakeCluster {
	c := &fakeCluster{detail: map[timer.ShardID]backend.ShardView{}}
	c.view = backend.ClusterView{
		ClusterID: "c0ffee", Version: "test", Healthy: true, Replicas: 2, ShardsNow: 2,
		Nodes: []backend.NodeView{
			{Name: "n1", HTTP: "127.0.0.1:7700", State: backend.NodeAlive, Leads: 2, Replicas: 2, Version: "test", Unfit: "its disk is \"slow\"", ClockOffsetMs: new(int64(-3))},
			{Name: "n2", HTTP: "127.0.0.1:7800", State: backend.NodeAlive, Replicas: 2, Version: "test", ClockOffsetMs: new(int64)},
			{Name: "n3", State: backend.NodeDown, Replicas: 1},
		},
		Shards: []backend.ShardRow{
			{Shard: 1, Leader: "n1", Epoch: 4, Replicas: []string{"n1", "n2"}, State: backend.ShardOK},
			{Shard: 2, Epoch: 1, Replicas: []string{"n3"}, State: backend.ShardNoQuorum},
		},
	}
	c.detail[1] = backend.ShardView{ShardRow: c.view.Shards[0], Known: true, Term: 7, Applied: 1 << 40, Timers: 12, Hash: 0xc0ffee00}
	c.detail[2] = backend.ShardView{ShardRow: c.view.Shards[1]}
	return c
}

func (c *fakeCluster) View() backend.ClusterView { return c.view }

func (c *fakeCluster) Shard(id timer.ShardID) (backend.ShardView, bool) {
	v, ok := c.detail[id]
	return v, ok
}

func (c *fakeCluster) Backup(ctx context.Context, to io.Writer) error {
	if c.err != nil {
		return c.err
	}
	if c.backup != nil {
		return c.backup(ctx, to)
	}
	_, err := io.WriteString(to, "a backup")
	return err
}

func (c *fakeCluster) node(name string) (*backend.NodeView, error) {
	at := slices.IndexFunc(c.view.Nodes, func(n backend.NodeView) bool { return n.Name == name })
	switch {
	case c.err != nil:
		return nil, c.err
	case at < 0:
		return nil, backend.ErrUnknownNode
	}
	return &c.view.Nodes[at], nil
}

func (c *fakeCluster) Drain(_ context.Context, name string) error {
	n, err := c.node(name)
	if err == nil && n.State != backend.NodeDrained {
		n.State = backend.NodeDraining
	}
	return err
}

func (c *fakeCluster) Resume(_ context.Context, name string) error {
	n, err := c.node(name)
	if err == nil && n.State != backend.NodeDown {
		n.State = backend.NodeAlive
	}
	return err
}

func (c *fakeCluster) Remove(_ context.Context, name string, force, acceptLoss bool) error {
	n, err := c.node(name)
	if err == nil && len(c.view.Nodes) == 1 && !acceptLoss {
		return backend.ErrMajority
	}
	if err == nil && n.State != backend.NodeDrained && n.State != backend.NodeDown && !force {
		return backend.ErrNotDrained
	}
	if err == nil {
		c.view.Nodes = slices.DeleteFunc(c.view.Nodes, func(v backend.NodeView) bool { return v.Name == name })
	}
	return err
}

func (c *fakeCluster) SetReplicas(_ context.Context, replicas int) error {
	if c.err == nil {
		c.view.Replicas = replicas
	}
	return c.err
}

func (c *fakeCluster) SetShards(_ context.Context, shards int) error {
	switch {
	case c.err != nil:
		return c.err
	case c.view.Resharding != nil:
		return backend.ErrResharding
	case shards != 2*c.view.ShardsNow && shards != 4*c.view.ShardsNow:
		return backend.ErrBadShards
	}
	c.view.Resharding = &backend.ReshardingView{From: c.view.ShardsNow, To: shards, Shard: 1}
	c.view.ShardsNow *= 2
	return nil
}

func (c *fakeCluster) PreviewShards(_ context.Context, shards int) (backend.GrowthNeeds, error) {
	if shards <= c.view.ShardsNow {
		return backend.GrowthNeeds{}, backend.ErrBadShards
	}
	return backend.GrowthNeeds{Bytes: 1 << 40, MemoryBytes: 1 << 20, LastingBytes: 2 << 20, Moves: 5}, c.err
}

func (c *fakeCluster) Finalize(context.Context) (feature.Level, error) {
	if c.err != nil {
		return 0, c.err
	}
	if c.view.Upgrade != nil {
		c.view.Level, c.view.Upgrade = c.view.Upgrade.Level, nil
	}
	return feature.Level(c.view.Level), nil
}
