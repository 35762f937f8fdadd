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
	"slices"
	"strings"
	"time"

	"carillon/internal/feature"
	"carillon/node/limits"
	"carillon/transport/api/web"
)

// Config is a node's configuration. The zero value of a field means its documented default. The
// tags make flags, environment variables and keys of a file of it: the text of help has the bounds
// and, in brackets, the default.
type Config struct {
	DataDir string `name:"data" default:"${data}" placeholder:"DIR" help:"Where everything is kept (${default})."`
	// Port 0 picks a free one (see Node.Addr).
	HTTP        string   `name:"http" default:"${http}" placeholder:"HOST:PORT" help:"Address of the API (${default})."`
	HTTPHosts   []string `name:"http-host" placeholder:"HOST" help:"More names by which clients call the API."`
	CORSOrigins []string `name:"cors-origin" placeholder:"ORIGIN" help:"Origins whose pages may call the API, such as https://ops.example."`

	// Port 0 picks a free one. Neither of the two is opened unless one of them, Advertise, Join,
	// BootstrapExpect above 1, GossipKeyFile or PeerCert is given, or the directory's node is known
	// to be one of several.
	Peer   string `placeholder:"HOST:PORT" help:"Port for other nodes, TCP (${peer})."`
	Gossip string `placeholder:"HOST:PORT" help:"Discovery, TCP and UDP (${gossip})."`

	Advertise string `placeholder:"HOST" help:"Host at which other nodes reach this one."`
	Name      string `placeholder:"NAME" help:"Unique in the cluster (the host's name)."` // or its valid part: see nameOf
	Zone      string `placeholder:"ZONE" help:"Replicas of a shard spread over zones (none)."`
	// This node's own address may be among them. Without data, a node with Join founds nothing
	// unless BootstrapExpect is more than 1.
	Join []string `placeholder:"HOST:PORT" help:"Gossip addresses of the cluster's nodes."`

	// These three are ignored once there is data.
	BootstrapExpect int `default:"${bootstrap_expect}" placeholder:"N" help:"Founders, 1–99, all named in --join (${default})."`
	Replicas        int `default:"${replicas}" placeholder:"N" help:"Copies of each timer, 1–7 (${default})."` // or as many as there are nodes
	Shards          int `default:"${shards}" placeholder:"N" help:"Number of shards at the first start, 1–65535 (${default}); ctl shards adds more."`

	HistoryBytes int64         `type:"bytes" default:"${history_bytes}" placeholder:"SIZE" help:"Disk for the history (${default}); the oldest goes first."`
	TopicIdle    time.Duration `default:"${topic_idle}" placeholder:"TIME" help:"Delete auto-created topics after being empty this long, unless paused (${default})."` // at least 1s
	// While one node holds the level back, the release before can be started again.
	FeatureLevel int `placeholder:"N" help:"Highest feature level that it uses (the release's)."`

	Credentials `embed:""`

	AuditLog string `placeholder:"FILE" help:"Who changed what, a line of JSON each; off for none (audit.log in --data, where there are tokens)."`
	// Private networks are allowed by themselves only where HTTP is loopback and there is no
	// AuthFile: a node that asks for tokens has users to keep apart.
	CallbackAllow []netip.Prefix `placeholder:"CIDR" help:"Networks that receivers may be in, besides public ones."`
	// At least 64 MiB. Adds are refused when a quarter of it, or 128 MiB, is left. 0, and where
	// they are less: the limits of GOMEMLIMIT, of the process's control groups and of the machine.
	MemoryLimit    int64 `type:"bytes" placeholder:"SIZE" help:"Memory that this process may use, 300MiB or 8GiB (what GOMEMLIMIT, control groups and machine allow)."`
	MaxConnections int   `default:"${max_connections}" placeholder:"N" help:"Connections of clients at once, 16–1000000 (${default}); fewer where the limit of open files is low."`
	// See package slots of transport/callback for how they are divided among tenants, topics and
	// receivers.
	MaxCalls int `default:"${max_calls}" placeholder:"N" help:"Callbacks at once, 16–65536 (${default}); fewer where the limit of open files is low."`
	Outside  `embed:""`
	Alone    `embed:""`

	NoConsole       bool             `kong:"-"` // nothing is at / of the API
	KnownTopicsOnly bool             `kong:"-"` // an add to, or a pull from, a topic that nobody has made is refused
	Own             []netip.AddrPort `kong:"-"` // this process's other listeners: no callback goes there
	Workers         int              `kong:"-"` // event loops; half of GOMAXPROCS
	Version         string           `kong:"-"`
	Logger          *slog.Logger     `kong:"-"`
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

// Bounds of the settings of a cluster.
const (
	maxBootstrapExpect = 99
	maxReplicas        = 7
	maxNameBytes       = 63
)

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
	for _, list := range []*[]string{&c.Join, &c.HTTPHosts, &c.CORSOrigins} {
		*list = slices.Clone(*list)
		for i, text := range *list { // people write spaces after commas
			(*list)[i] = strings.TrimSpace(text)
		}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Outside = c.Outside.withDefaults()
	return c
}

func (c *Config) level() feature.Level { return feature.Level(c.FeatureLevel) }

// faults are what is wrong with a configuration.
type faults []error

// when adds a fault if it is one.
func (f *faults) when(is bool, format string, args ...any) {
	if is {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

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
	errs = append(errs, c.Credentials.validate()...)
	errs = append(errs, c.validateAlone()...)
	errs = append(errs, c.Outside.validate()...)
	return errors.Join(errs...)
}

// nameOf makes a name of a host's: characters that no name has become dashes. A host without a
// usable name gives "node".
func nameOf(host string) string {
	fit := strings.Map(func(r rune) rune {
		if r < 0x80 && web.ValidNode("x"+string(r)) {
			return r
		}
		return '-'
	}, host)
	fit = strings.TrimLeft(fit, "_.-")
	if fit = fit[:min(len(fit), maxNameBytes)]; fit == "" {
		return "node"
	}
	return fit
}

func (c Config) validateCluster() (errs faults) {
	errs.when(!web.ValidNode(c.Name), "name: %q must be 1–63 of A-Z a-z 0-9 _ . -, starting with a letter or digit", c.Name)
	errs.when(c.Zone != "" && !web.ValidNode(c.Zone), "zone: %q must be 1–63 of A-Z a-z 0-9 _ . -, starting with a letter or digit", c.Zone)
	for _, address := range c.Join {
		host, err := splitAddress(address, 1)
		if err == nil && host == "" {
			err = fmt.Errorf("%q has no host", address)
		}
		errs.when(err != nil, "join: %w; it takes gossip addresses of nodes", err)
	}
	errs.when(c.BootstrapExpect < 1 || c.BootstrapExpect > maxBootstrapExpect, "bootstrap-expect: %d is out of 1–%d", c.BootstrapExpect, maxBootstrapExpect)
	errs.when(c.BootstrapExpect > 1 && len(c.Join) == 0, "bootstrap-expect: %d nodes cannot find each other without --join, which names the gossip addresses of all of them", c.BootstrapExpect)
	errs.when(c.Replicas < 1 || c.Replicas > maxReplicas, "replicas: %d is out of 1–%d", c.Replicas, maxReplicas)
	return errs
}
