package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"carillon/client"
	"carillon/timer"
)

// TestClientKnowsTheShard: clients find a timer's shard as nodes do. 65,535 shards show almost all
// of the hash, and topics and ids of every length show all of its steps.
func TestClientKnowsTheShard(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	topic := &timer.Topic{}
	for n := range 20_000 {
		topic.Name = strings.Repeat("t", 1+r.IntN(128))
		shards := 1 + r.IntN(200)
		if n%2 == 0 {
			shards = 65_535
		}
		id := fmt.Sprint("order-", n)
		switch r.IntN(7) {
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
		case 5:
			b := make([]byte, 1+r.IntN(128))
			for i := range b {
				b[i] = byte('a' + r.IntN(26))
			}
			id = string(b)
		}
		if got, want := client.ShardOf(topic.Name, id, shards), timer.ShardOf(topic, id, shards); got != int(want) {
			t.Fatalf("%s, %s of %d shards: %d, want %d", topic.Name, id, shards, got, want)
		}
	}
}

// TestShardsOfTheClients: the file by which the clients in other languages are tested is right.
func TestShardsOfTheClients(t *testing.T) {
	file, err := os.Open("../../clients/testdata/shards.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := 0
	for s := bufio.NewScanner(file); s.Scan(); lines++ {
		var topic, id string
		var shards, want int
		if _, err := fmt.Sscan(s.Text(), &topic, &id, &shards, &want); err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		if got := timer.ShardOf(&timer.Topic{Name: topic}, id, shards); int(got) != want {
			t.Errorf("%q: %d", s.Text(), got)
		}
	}
	if lines < 100 {
		t.Errorf("%d lines", lines)
	}
}
