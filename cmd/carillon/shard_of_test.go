package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"carillon/client"
	"carillon/timer"
)

// TestClientKnowsTheShard: clients find a timer's shard as nodes do.
func TestClientKnowsTheShard(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	topic := &timer.Topic{}
	for n := range 20_000 {
		topic.Name = strings.Repeat("t", 1+r.IntN(128))
		shards := 1 + r.IntN(200)
		id := fmt.Sprint("order-", n)
		switch r.IntN(6) {
		case 0:
			id = timer.NewID(timer.ShardID(1+r.IntN(shards)), r.Uint64(), r.Uint64())
		case 1:
			id = timer.KeyedID(fmt.Sprint("k", r.IntN(10)), r.Uint64(), r.Uint64())
		case 2:
			id = fmt.Sprintf("{%d}%s", n, strings.Repeat("x", r.IntN(100)))
		case 3:
			id = strings.Repeat("y", 1+r.IntN(128))
		case 4: // nearly an id of the cluster's
			b := []byte(timer.NewID(timer.ShardID(r.IntN(shards)), r.Uint64(), r.Uint64()))
			b[r.IntN(len(b))] = "0sz-"[r.IntN(4)]
			id = string(b)
		}
		if got, want := client.ShardOf(topic.Name, id, shards), timer.ShardOf(topic, id, shards); got != int(want) {
			t.Fatalf("%s, %s of %d shards: %d, want %d", topic.Name, id, shards, got, want)
		}
	}
}
