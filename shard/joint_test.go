package shard

import (
	"crypto/rand"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// jointChange is a change of assignment. The numbers are indexes of nodes in the cluster.
type jointChange struct {
	name     string
	old, new []int
}

var jointChanges = []jointChange{
	{"two of three go", []int{0, 1, 2}, []int{2, 3, 4}},
	{"two of three go, the leader stays", []int{0, 1, 2}, []int{0, 3, 4}},
	{"all of three go", []int{0, 1, 2}, []int{3, 4, 5}},
	{"one becomes three", []int{0}, []int{0, 1, 2}},
	{"one becomes three others", []int{0}, []int{1, 2, 3}},
	{"three become one", []int{0, 1, 2}, []int{0}},
	{"three become one that followed", []int{0, 1, 2}, []int{2}},
	{"one of two goes", []int{0, 1}, []int{1, 2}},
}

// nodes returns the number of nodes in the change.
func (j *jointChange) nodes() int { return 1 + max(slices.Max(j.old), slices.Max(j.new)) }

// leavesMost reports whether both assignments keep a majority without the given nodes.
func (j *jointChange) leavesMost(without uint) bool {
	for _, row := range [][]int{j.old, j.new} {
		left := 0
		for _, i := range row {
			left += int(1 &^ (without >> i))
		}
		if 2*left <= len(row) {
			return false
		}
	}
	return true
}

// nodeFailure is a failure of some nodes at one step of a change.
type nodeFailure struct {
	step  int
	nodes uint // bit set
	how   string
	slow  int // the node with a slow disk; -1: none
}

const (
	power = "power" // they lose unsynced data and restart at once
	down  = "down"  // the same, but they restart after the others have worked without them
	away  = "away"  // they are cut off until then
)

// follows runs a change with one failure, or with none if b is nil. It returns the number of steps
// until the assignment was followed.
func (j *jointChange) follows(t testing.TB, b *nodeFailure) (steps int, err error) {
	defer func() {
		if p := recover(); p != nil {
			f, ok := p.(fault)
			if !ok {
				panic(p)
			}
			err = fmt.Errorf("%s; %+v: %w", j.name, b, f)
		}
	}()
	reader := rand.Reader
	rand.Reader = steady{mathrand.New(mathrand.NewPCG(1, 1))}
	defer func() { rand.Reader = reader }()
	c := newHostCluster(t, j.nodes(), j.old)
	defer c.end()
	for range 3 {
		c.takes(5 * time.Second)
	}
	c.row = Assignment{Group: 1, Epoch: 2, Founders: c.row.Members}
	for _, at := range j.new {
		node := firstNode + uint64(at)
		m := Member{Node: node, Replica: ReplicaID(node, 2)}
		if slices.Contains(j.old, at) {
			m.Replica = ReplicaID(node, 1)
		}
		c.row.Members = append(c.row.Members, m)
	}
	c.placeAll()
	begun, struck := c.steps, false
	if b != nil {
		c.slow = b.slow
		c.after = func() {
			if c.steps == begun+b.step {
				struck = true
				c.strike(b)
			}
		}
	}
	c.until("the row is followed, or somebody struck", 30*time.Second, func() bool {
		c.add()
		return struck || c.followed()
	})
	c.slow, c.after = -1, nil
	if b != nil {
		if struck && b.how != power {
			c.takes(10 * time.Second)
			c.mend()
		}
	}
	steps = c.steps - begun
	c.concludes(15 * time.Second)
	return steps, nil
}

func (c *hostCluster) strike(b *nodeFailure) {
	var struck []int
	for i := range c.hosts {
		if b.nodes>>i&1 == 1 {
			struck = append(struck, i)
		}
	}
	for _, i := range struck {
		if b.how == away {
			c.away[i] = true
		} else {
			c.crash(i)
		}
	}
	if b.how == power {
		for _, i := range struck {
			c.open(i)
		}
	}
}

// mend reconnects and restarts all nodes.
func (c *hostCluster) mend() {
	for i, r := range c.hosts {
		c.away[i] = false
		if r.host == nil {
			c.open(i)
		}
	}
	c.placeAll()
}

// steady is the source of raft's election timeouts: the same in each run.
type steady struct{ *mathrand.Rand }

func (s steady) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(s.Uint32())
	}
	return len(p), nil
}

// blows lists all failures that may hit a change with the given number of steps.
func (j *jointChange) blows(steps int) (list []nodeFailure) {
	for step := 1; step <= steps; step++ {
		for nodes := uint(1); nodes < 1<<j.nodes(); nodes++ {
			for slow := -1; slow < j.nodes(); slow++ {
				list = append(list, nodeFailure{step, nodes, power, slow})
				if j.leavesMost(nodes) {
					list = append(list, nodeFailure{step, nodes, down, slow}, nodeFailure{step, nodes, away, slow})
				}
			}
		}
	}
	return list
}

var flagBlows = flag.Int("joint.blows", 6, "meet each change of several voters so often")

// TestJointChanges: several voters change at once, and at each step some processes may crash or be
// cut off. Where both assignments keep a majority, the others go on meanwhile. Once all nodes are
// back, the assignment is followed and every acknowledged timer exists (I1, I9, I14).
func TestJointChanges(t *testing.T) {
	most := *flagBlows
	switch {
	case os.Getenv("CARILLON_SOAK") != "":
		most = 2000
	case testing.Short():
		most = 2
	}
	for i := range jointChanges {
		j := &jointChanges[i]
		t.Run(j.name, func(t *testing.T) {
			if err := j.try(t, 0, most); err != nil {
				t.Error(err)
			}
		})
	}
}

// try runs a change with up to most failures, drawn at random.
func (j *jointChange) try(t *testing.T, seed uint64, most int) (err error) {
	synctest.Test(t, func(t *testing.T) {
		var steps int
		if steps, err = j.follows(t, nil); err != nil {
			return
		}
		all := j.blows(steps)
		chance, met := mathrand.New(mathrand.NewPCG(2, seed)), 0
		for ; met < most && err == nil; met++ {
			_, err = j.follows(t, &all[chance.IntN(len(all))])
		}
		t.Logf("%d steps; %d of %d blows", steps, met, len(all))
	})
	return err
}
