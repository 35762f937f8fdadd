package client

import (
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
)

// LeaderHeader is the header of an answer about one timer that another node has decided: it names
// the node that leads the timer's shard, as "host:port";shard=3;shards=16.
const LeaderHeader = "Carillon-Leader"

// Leaders has the leader of each shard, as answers named it, so that a request goes to the node
// that decides it. It knows only the nodes that it was made with: no answer makes a client send a
// request, or a token, anywhere else. It is safe for use by many goroutines.
type Leaders struct {
	nodes  map[string]int // by host:port
	shards atomic.Pointer[[]atomic.Int32]
}

// NewLeaders makes one that knows nodes with these addresses (host:port), in this order, and no
// leader yet.
func NewLeaders(addresses []string) *Leaders {
	l := &Leaders{nodes: map[string]int{}}
	for i, address := range addresses {
		l.nodes[address] = i
	}
	return l
}

// Node is the index of the node that leads a timer's shard; false where that is not known. An empty
// id is that of no timer.
func (l *Leaders) Node(topic, id string) (index int, known bool) {
	shards := l.shards.Load()
	if shards == nil || id == "" {
		return 0, false
	}
	index = int((*shards)[ShardOf(topic, id, len(*shards))-1].Load()) - 1
	return index, index >= 0
}

// Note takes over an answer's LeaderHeader; a text of any other form changes nothing.
func (l *Leaders) Note(header string) {
	address, shard, count, ok := parseLeader(header)
	if !ok {
		return
	}
	shards := l.shards.Load()
	if shards == nil || len(*shards) != count {
		made := make([]atomic.Int32, count)
		if !l.shards.CompareAndSwap(shards, &made) {
			return // the next answer has it too
		}
		shards = &made
	}
	node, known := l.nodes[address]
	if !known {
		node = -1
	}
	(*shards)[shard-1].Store(int32(node + 1))
}

// Forget makes the leader of a timer's shard unknown, after a request to it that had no answer.
func (l *Leaders) Forget(topic, id string) {
	if shards := l.shards.Load(); shards != nil && id != "" {
		(*shards)[ShardOf(topic, id, len(*shards))-1].Store(0)
	}
}

// mostShards is the most that a cluster has.
const mostShards = 65535

func parseLeader(header string) (address string, shard, shards int, ok bool) {
	quoted, params, _ := strings.Cut(header, ";shard=")
	first, second, found := strings.Cut(params, ";shards=")
	if !found || len(quoted) < 3 || quoted[0] != '"' || quoted[len(quoted)-1] != '"' {
		return "", 0, 0, false
	}
	var err1, err2 error
	shard, err1 = strconv.Atoi(first)
	shards, err2 = strconv.Atoi(second)
	ok = err1 == nil && err2 == nil && shard >= 1 && shard <= shards && shards <= mostShards
	return quoted[1 : len(quoted)-1], shard, shards, ok
}

// addressOf is host:port of a node's URL, as nodes name themselves.
func addressOf(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "https" {
		return u.Host + ":443"
	}
	return u.Host + ":80"
}
