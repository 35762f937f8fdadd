// Package node assembles a Carillon node: log, raft host, topics, callback client and HTTP server, wired once for
// the binary and for tests of the whole. New binds nothing and starts nothing; Run blocks until the node has stopped.
package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
)

// Config is a node's configuration. The zero value of a field means its documented default.
type Config struct {
	DataDir string // ./carillon-data
	HTTP    string // API address; 127.0.0.1:7700. Port 0 picks a free one (see Node.Addr)
	Name    string // shown to people; the host name
	Shards  int    // timer shards when the cluster is founded: 1–65535; 16. Ignored once there is data

	// Insecure allows an HTTP address that is not loopback without credentials.
	Insecure bool
	// AuthFile is the YAML list of tokens; empty: no credentials asked.
	AuthFile string
	// CallbackAllow are the networks that receivers may be in, beside public ones.
	CallbackAllow []netip.Prefix

	Workers     int   // event loops; half of GOMAXPROCS
	MemoryLimit int64 // bytes of timers above which adds are refused; 3/4 of the machine's (or the cgroup's) memory

	Version string
	Logger  *slog.Logger
}

// Defaults of Config.
const (
	DefaultDataDir = "./carillon-data"
	DefaultHTTP    = "127.0.0.1:7700"
	DefaultShards  = 16
)

func (c Config) withDefaults() Config {
	if c.DataDir == "" {
		c.DataDir = DefaultDataDir
	}
	if c.HTTP == "" {
		c.HTTP = DefaultHTTP
	}
	if c.Name == "" {
		c.Name, _ = os.Hostname()
	}
	if c.Shards == 0 {
		c.Shards = DefaultShards
	}
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate reports all that is wrong, at once.
func (c Config) validate() error {
	var errs []error
	if c.Shards < 1 || c.Shards > 65535 {
		errs = append(errs, fmt.Errorf("shards: %d is out of 1–65535", c.Shards))
	}
	if c.Workers < 0 || c.Workers > 256 {
		errs = append(errs, fmt.Errorf("workers: %d is out of 0–256", c.Workers))
	}
	host, _, err := net.SplitHostPort(c.HTTP)
	if err != nil {
		errs = append(errs, fmt.Errorf("http: %q is not host:port", c.HTTP))
	} else if !loopback(host) && c.AuthFile == "" && !c.Insecure {
		errs = append(errs, fmt.Errorf("http: %s is not loopback and no credentials are set: give --auth-file, or --insecure-no-auth if anybody who reaches the port may use it", c.HTTP))
	}
	return errors.Join(errs...)
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}
