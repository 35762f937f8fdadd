package demo

import (
	"context"
	crand "crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"carillon/client"
)

const (
	startLimit = 30 * time.Second
	stopLimit  = 5 * time.Second
	shards     = 16
)

// cluster is the node processes.
type cluster struct {
	dir    string
	key    string // file, by which the nodes know each other
	nodes  []*node
	http   *http.Client
	client *client.Client // of all nodes
}

func newCluster(config Config, dir string) (*cluster, error) {
	c := &cluster{dir: dir, key: filepath.Join(dir, "cluster.key"), http: &http.Client{
		Timeout:   requestTimeout,
		Transport: &http.Transport{MaxIdleConnsPerHost: shards}, // no proxy: it is this machine
	}}
	if err := os.WriteFile(c.key, []byte(newKey()), 0o600); err != nil {
		return nil, err
	}
	ports, err := freePorts(3 * config.Nodes)
	if err != nil {
		return nil, err
	}
	for i := range config.Nodes {
		n := &node{name: fmt.Sprintf("n%d", i+1), executable: config.Executable, env: config.Env}
		n.dir = filepath.Join(dir, n.name)
		n.http, n.peer, n.gossip = ports[3*i], ports[3*i+1], ports[3*i+2]
		c.nodes = append(c.nodes, n)
	}
	c.client, err = client.New(c.urls(), client.Options{HTTP: c.http, Retries: -1})
	return c, err
}

func (c *cluster) urls() (list []string) {
	for _, n := range c.nodes {
		list = append(list, "http://"+n.http)
	}
	return list
}

func newKey() string {
	key := make([]byte, 32)
	_, _ = crand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key) + "\n"
}

// flags are a node's, each time that it starts: those that found a cluster are ignored where there
// is one.
func (c *cluster) flags(n *node) []string {
	flags := []string{"--data", n.dir, "--name", n.name, "--http", n.http, "--peer", n.peer, "--gossip", n.gossip,
		"--shards", fmt.Sprint(shards), "--log-level", "warn"}
	if len(c.nodes) == 1 {
		return flags
	}
	var join []string
	for _, other := range c.nodes {
		join = append(join, other.gossip)
	}
	return append(flags, "--join", strings.Join(join, ","), "--bootstrap-expect", fmt.Sprint(len(c.nodes)), "--gossip-key", c.key)
}

// start runs all nodes and waits until they are one healthy cluster.
func (c *cluster) start(ctx context.Context) error {
	for _, n := range c.nodes {
		if err := n.start(c.flags(n)); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := c.awaitReady(ctx, n); err != nil {
			return err
		}
	}
	if len(c.nodes) == 1 {
		return nil
	}
	return await(ctx, "the nodes are not one healthy cluster", func() (bool, error) {
		state := c.state(ctx)
		return state.Healthy && len(state.Nodes) == len(c.nodes), c.unexpectedExits()
	})
}

// stop ends all nodes, politely if they let it be quick.
func (c *cluster) stop() { c.stopWithin(stopLimit) }

func (c *cluster) stopWithin(most time.Duration) {
	for _, n := range c.nodes {
		if n.alive() {
			// Where that is not known, they are killed below.
			_ = n.process.Process.Signal(syscall.SIGTERM)
		}
	}
	limit, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	for _, n := range c.nodes {
		if n.exited == nil {
			continue
		}
		select {
		case <-n.exited:
		case <-limit.Done():
		}
		n.kill()
	}
	c.http.CloseIdleConnections()
}

// unexpectedExits reports a node that ended though nobody killed it.
func (c *cluster) unexpectedExits() error {
	var faults []error
	for _, n := range c.nodes {
		if n.exited != nil && !n.alive() && !n.killed {
			faults = append(faults, n.exitError())
		}
	}
	return errors.Join(faults...)
}

func (c *cluster) addresses() string {
	var list []string
	for _, n := range c.nodes {
		list = append(list, n.name+" http://"+n.http)
	}
	return strings.Join(list, ", ")
}

// node is one process of the serve command. One goroutine starts and kills it.
type node struct {
	name               string
	dir                string
	http, peer, gossip string // addresses, the same at each start
	executable         string
	env                []string

	process *exec.Cmd
	exited  chan struct{} // closed when the process is gone; nil before the first start
	killed  bool
}

func (n *node) start(flags []string) error {
	logs, err := os.OpenFile(n.logs(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("demo: open log of %s: %w", n.name, err)
	}
	defer logs.Close() // the process has its own
	process, exited := exec.Command(n.executable, append([]string{"serve"}, flags...)...), make(chan struct{})
	process.Env, process.Stdout, process.Stderr = n.env, logs, logs
	if err := process.Start(); err != nil {
		return fmt.Errorf("demo: start %s: %w", n.name, err)
	}
	n.process, n.exited, n.killed = process, exited, false
	go func() {
		_ = process.Wait() // that it ended is all there is to know; why is in its log
		close(exited)
	}()
	return nil
}

func (n *node) logs() string { return n.dir + ".log" }

func (n *node) alive() bool {
	if n.exited == nil {
		return false
	}
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// kill is kill -9. It waits until the process is gone.
func (n *node) kill() {
	n.killed = true
	_ = n.process.Process.Kill() // fails only if it is gone
	<-n.exited
}

func (c *cluster) awaitReady(ctx context.Context, n *node) error {
	return await(ctx, n.name+" is not ready", func() (bool, error) {
		if !n.alive() {
			return false, n.exitError()
		}
		answer, err := c.http.Get("http://" + n.http + "/readyz")
		if err != nil {
			return false, nil
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK, nil
	})
}

// exitError are the last lines of the process.
func (n *node) exitError() error {
	text, err := os.ReadFile(n.logs())
	if err != nil {
		return fmt.Errorf("demo: %s ended by itself, and its log cannot be read: %w", n.name, err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("demo: %s ended by itself: %s", n.name, lines[len(lines)-1])
}

// await looks until a condition holds; otherwise names the state if it does not in time.
func await(ctx context.Context, otherwise string, look func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("demo: %s after %v", otherwise, startLimit))
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if so, err := look(); so || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Ports are taken from below those that systems give to outgoing connections: while a node is down,
// nobody's connection takes its address.
const (
	lowestPort  = 20_000
	highestPort = 31_900
)

// freePorts are loopback addresses that nobody uses, for TCP and for UDP.
func freePorts(n int) (addresses []string, err error) {
	port := lowestPort + rand.IntN(highestPort-lowestPort)
	for range highestPort - lowestPort {
		if port++; port >= highestPort {
			port = lowestPort
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		if !isFree(address) {
			continue
		}
		if addresses = append(addresses, address); len(addresses) == n {
			return addresses, nil
		}
	}
	return nil, errors.New("demo: no free ports")
}

func isFree(address string) bool {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return false
	}
	listener.Close()
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return false
	}
	packets.Close()
	return true
}
