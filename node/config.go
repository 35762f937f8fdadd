// Package node assembles a Carillon node: log, raft host, topics, callback client and HTTP server,
// wired once for the binary and for tests of the whole. New binds nothing and starts nothing; Run
// blocks until the node has stopped.
package node

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"carillon/internal/feature"
	"carillon/node/limits"
)

// Config is a node's configuration. The zero value of a field means its documented default.
type Config struct {
	DataDir string // ./carillon-data
	HTTP    string // API address; 127.0.0.1:7700. Port 0 picks a free one (see Node.Addr)
	// Peer is the address for the other nodes, TCP; 127.0.0.1:7701. Gossip is that of discovery,
	// TCP and UDP; 127.0.0.1:7702. Port 0 picks a free one. Neither is opened unless one of them,
	// Advertise, Join, BootstrapExpect above 1, GossipKeyFile or PeerCert is given, or the
	// directory's node is known to be one of several.
	Peer, Gossip string

	// HTTPHosts are further names and addresses, perhaps with a port, by which clients call the
	// API.
	HTTPHosts []string
	// CORSOrigins are origins, https://host, whose pages may call the API. None: pages of others
	// may read the routes that need no token.
	CORSOrigins []string

	// HTTPCert and HTTPKey are PEM files for TLS of the API, both or none; HTTPClientCA is one of
	// the authorities of the certificates that clients must show, "" when they need none. Read
	// again by Reload.
	HTTPCert, HTTPKey, HTTPClientCA string

	// Advertise is the host at which other nodes reach this one, where that is not the host it
	// binds. No port.
	Advertise string
	Name      string // unique in the cluster; the host name, or its valid part: see validName
	Zone      string // replicas of a shard go to different zones where there are some; none

	// Join are gossip addresses (host:port) of nodes to find the cluster by; this node's own may be
	// among them. Without data, a node with Join founds nothing unless BootstrapExpect is more than
	// 1.
	Join []string
	// How many nodes found the cluster together, each naming all in Join: 1–99; 1. Ignored once
	// there is data.
	BootstrapExpect int
	// Copies of each shard, or as many as there are nodes: 1–7; 3. Ignored once there is data.
	Replicas int
	// Timer shards when the cluster is founded: 1–65535; 4. Ignored once there is data.
	Shards int

	// See readKeyFile: by it nodes know each other, and discovery is encrypted; empty: neither.
	GossipKeyFile string
	// SecretsKeyFile has the keys by which secrets are sealed before they are written or sent to
	// other nodes (see package secret): the first seals, all open. The same on all nodes; empty:
	// secrets lie in the clear.
	SecretsKeyFile string
	// PeerCert, PeerKey and PeerCA are PEM files for mutual TLS between nodes: all three, or none.
	// Without them it is made of GossipKeyFile.
	PeerCert, PeerKey, PeerCA string

	// Insecure allows ports that other machines can reach without credentials: HTTP without
	// AuthFile, Gossip without GossipKeyFile, Peer without that or certificates.
	Insecure bool
	// AuthFile is the YAML list of tokens; empty: no credentials asked.
	AuthFile string
	// AuditLog is the file of the audit log; "off" for none. "": audit.log in DataDir where there
	// is an AuthFile, else none.
	AuditLog string
	// CallbackAllow are networks that receivers may be in, besides public ones. Private networks
	// are allowed by themselves only where HTTP is loopback and there is no AuthFile: a node that
	// asks for tokens has users to keep apart.
	CallbackAllow []netip.Prefix
	// Own are this process's other listeners: no callback goes there.
	Own []netip.AddrPort
	// MaxCalls is how many callbacks this node makes at once: 16–65536; 2048. Fewer where the limit
	// of open files is low.
	// See package slots of transport/callback for how they are divided among tenants, topics and
	// receivers.
	MaxCalls int

	HistoryBytes int64 // size of the history's files, on this node; the oldest go first. 4 GiB

	NoConsole bool // nothing is at / of the API
	// An add to, or a pull from, a topic that nobody has made is refused.
	KnownTopicsOnly bool
	// A topic that was made by an add goes away when it has been empty for this long: at least 1s;
	// 1h.
	TopicIdle time.Duration

	// MaxConnections of clients at once, all together: 16–1000000; 8192. Fewer when the process may
	// not open that many files.
	MaxConnections int

	Workers int // event loops; half of GOMAXPROCS

	// MemoryLimit is how many bytes the process may use, at least 64 MiB; adds are refused when a
	// quarter of that, or 128 MiB, is left. 0, and where they are less: the limits of GOMEMLIMIT,
	// of the process's control groups and of the machine.
	MemoryLimit int64

	// FeatureLevel is the highest level that this node registers: 1 to that of the build, which is
	// the default. While one node holds it back, the release before can be started again.
	FeatureLevel int

	Version string
	Logger  *slog.Logger
	Outside

	Alone
}

// Defaults of Config.
const (
	DefaultDataDir = "./carillon-data"
	DefaultHTTP    = "127.0.0.1:7700"
	DefaultPeer    = "127.0.0.1:7701"
	DefaultGossip  = "127.0.0.1:7702"

	DefaultBootstrapExpect = 1
	DefaultReplicas        = 3
	DefaultShards          = 4
	DefaultHistoryBytes    = 4 << 30
	DefaultTopicIdle       = time.Hour
	DefaultMaxConnections  = 8192
	DefaultMaxCalls        = 2048
)

// highestLevel is the feature level of this build; a build for tests has one more.
var highestLevel = feature.LevelOfBuild

// minTopicIdle is the least: each look at a topic asks all shards.
const minTopicIdle = time.Second

// maxConnections is the highest value of --max-connections.
const maxConnections = 1_000_000

// minMemoryLimit is the least that a node runs with.
const minMemoryLimit = 64 << 20

// minHistoryBytes is the least that a history can be held to.
const minHistoryBytes = 16 << 20

func (c Config) withDefaults() Config {
	c.ports = c.asksForPorts()
	c.DataDir = cmp.Or(c.DataDir, DefaultDataDir)
	c.HTTP = cmp.Or(c.HTTP, DefaultHTTP)
	c.Peer = cmp.Or(c.Peer, DefaultPeer)
	c.Gossip = cmp.Or(c.Gossip, DefaultGossip)
	if c.Name == "" {
		host, _ := os.Hostname()
		c.Name = nameOf(host)
	}
	c.BootstrapExpect = cmp.Or(c.BootstrapExpect, DefaultBootstrapExpect)
	c.Replicas = cmp.Or(c.Replicas, DefaultReplicas)
	c.Shards = cmp.Or(c.Shards, DefaultShards)
	c.HistoryBytes = cmp.Or(c.HistoryBytes, DefaultHistoryBytes)
	c.TopicIdle = cmp.Or(c.TopicIdle, DefaultTopicIdle)
	c.MaxConnections = cmp.Or(c.MaxConnections, DefaultMaxConnections)
	c.FeatureLevel = cmp.Or(c.FeatureLevel, int(highestLevel))
	c.MaxCalls = cmp.Or(c.MaxCalls, DefaultMaxCalls)
	c.Version = cmp.Or(c.Version, "dev")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Outside = c.Outside.withDefaults()
	return c
}

// level is FeatureLevel as others want it.
func (c *Config) level() feature.Level { return feature.Level(c.FeatureLevel) }

// faults are what is wrong with a configuration.
type faults []error

// when adds a fault if it is one.
func (f *faults) when(is bool, format string, args ...any) {
	if is {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// validate reports all that is wrong, at once.
func (c Config) validate() error {
	var errs faults
	errs.when(c.Shards < 1 || c.Shards > 65535, "shards: %d is out of 1–65535", c.Shards)
	errs.when(c.FeatureLevel < 1 || c.level() > highestLevel, "feature-level: %d is out of 1–%d", c.FeatureLevel, highestLevel)
	errs.when(c.HistoryBytes < minHistoryBytes, "history-bytes: %d bytes is less than 16 MiB", c.HistoryBytes)
	errs.when(c.TopicIdle < minTopicIdle, "topic-idle: %v is less than %v", c.TopicIdle, minTopicIdle)
	errs.when(c.MemoryLimit != 0 && c.MemoryLimit < minMemoryLimit, "memory-limit: %d bytes is less than 64 MiB", c.MemoryLimit)
	errs.when(c.MaxConnections < limits.MinConnections || c.MaxConnections > maxConnections, "max-connections: %d is out of %d–%d", c.MaxConnections, limits.MinConnections, maxConnections)
	errs.when(c.MaxCalls < 16 || c.MaxCalls > 65536, "max-calls: %d is out of 16–65536", c.MaxCalls)
	errs.when(c.Workers < 0 || c.Workers > 256, "workers: %d is out of 0–256", c.Workers)
	if info, err := os.Stat(c.DataDir); err == nil && info.Mode().Perm()&0o002 != 0 {
		errs = append(errs, fmt.Errorf("data: anybody on this machine may put files into %s: chmod o-w %s", c.DataDir, c.DataDir))
	}
	errs = append(errs, c.validateAddresses()...)
	errs = append(errs, c.validateCluster()...)
	errs = append(errs, c.validateKeys()...)
	errs = append(errs, c.validateAlone()...)
	errs = append(errs, c.Outside.validate()...)
	return errors.Join(errs...)
}
