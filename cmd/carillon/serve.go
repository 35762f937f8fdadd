package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"runtime/debug"
	"time"

	"carillon/cmd/carillon/terminal"
	"carillon/node"
)

// serveCmd is the table of a node's settings: one field is one flag, one environment variable and
// one key of the configuration file. docs/operations.md lists them; a test holds it to this.
type serveCmd struct {
	Data             string         `default:"${data}" placeholder:"DIR" help:"Where everything is kept (${default})."`
	HTTP             string         `name:"http" default:"${http}" placeholder:"HOST:PORT" help:"Address of the API (${default})."`
	HTTPHost         []string       `name:"http-host" placeholder:"HOST" help:"More names by which clients call the API."`
	CORSOrigin       []string       `name:"cors-origin" placeholder:"ORIGIN" help:"Origins whose pages may call the API, such as https://ops.example."`
	Peer             string         `placeholder:"HOST:PORT" help:"Port for other nodes, TCP (${peer})."`
	Gossip           string         `placeholder:"HOST:PORT" help:"Discovery, TCP and UDP (${gossip})."`
	Advertise        string         `placeholder:"HOST" help:"Host at which other nodes reach this one."`
	Name             string         `placeholder:"NAME" help:"Unique in the cluster (the host's name)."`
	Zone             string         `placeholder:"ZONE" help:"Replicas of a shard spread over zones (none)."`
	Join             []string       `placeholder:"HOST:PORT" help:"Gossip addresses of the cluster's nodes."`
	BootstrapExpect  int            `default:"${bootstrap_expect}" placeholder:"N" help:"Founders, 1–99, all named in --join (${default})."`
	Replicas         int            `default:"${replicas}" placeholder:"N" help:"Copies of each timer, 1–7 (${default})."`
	Shards           int            `default:"${shards}" placeholder:"N" help:"Parts of the timers at the first start, 1–65535 (${default}); ctl shards adds more."`
	HistoryBytes     byteSize       `default:"${history_bytes}" placeholder:"SIZE" help:"Disk for the history (${default}); the oldest goes first."`
	AutoCreateTopics bool           `default:"true" negatable:"" help:"Adds make unknown topics (${default})."`
	TopicIdle        time.Duration  `default:"${topic_idle}" placeholder:"TIME" help:"Delete auto-created topics after being empty this long (${default})."`
	Config           string         `placeholder:"FILE" help:"YAML file with any of these settings."`
	FeatureLevel     int            `placeholder:"N" help:"Highest feature level that it uses (the release's)."`
	AuthFile         string         `placeholder:"FILE" help:"YAML list of tokens; without it nobody is asked for one. Read again on SIGHUP."`
	HTTPCert         string         `name:"http-cert" placeholder:"FILE" help:"Certificate of the API, with its chain (PEM): clients use https. Read again on SIGHUP."`
	HTTPKey          string         `name:"http-key" placeholder:"FILE" help:"Private key of --http-cert (PEM)."`
	HTTPClientCA     string         `name:"http-client-ca" placeholder:"FILE" help:"Clients must show a certificate of these authorities (PEM)."`
	InsecureNoAuth   bool           `name:"insecure-no-auth" help:"Allow addresses that are not loopback without credentials or keys."`
	GossipKey        string         `placeholder:"FILE" help:"Key file of the cluster, one for all nodes."`
	SecretsKey       string         `placeholder:"FILE" help:"Keys that seal secrets at rest, one file for all nodes."`
	PeerCert         string         `placeholder:"FILE" help:"Certificate that names this node (PEM)."`
	PeerKey          string         `placeholder:"FILE" help:"Private key of --peer-cert (PEM)."`
	PeerCA           string         `name:"peer-ca" placeholder:"FILE" help:"Authority of all nodes' certificates (PEM)."`
	AuditLog         string         `placeholder:"FILE" help:"Who changed what, a line of JSON each; off for none (audit.log in --data, where there are tokens)."`
	CallbackAllow    []netip.Prefix `placeholder:"CIDR" help:"Networks that receivers may be in, besides public ones."`
	MemoryLimit      byteSize       `placeholder:"SIZE" help:"Memory that this process may use, 300MiB or 8GiB (what GOMEMLIMIT, control groups and machine allow)."`
	Console          bool           `default:"true" negatable:"" help:"Show the console, a page for people, at / of the API (${default})."`
	MaxConnections   int            `default:"${max_connections}" placeholder:"N" help:"Connections of clients at once, 16–1000000 (${default}); fewer where the limit of open files is low."`
	MaxCalls         int            `default:"${max_calls}" placeholder:"N" help:"Callbacks at once, 16–65536 (${default}); fewer where the limit of open files is low."`
	outsideFlags     `embed:""`
	TestClock        clockStart `placeholder:"TIME" help:"For tests: timers run by a clock that stands still until POST /v1/clock moves it, from now or an RFC 3339 time on; one node, in its own --data (off)."`
	logSettings      `embed:""`
}

// logSettings is what a node logs.
type logSettings struct {
	LogLevel  string `default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" help:"debug, info, warn or error (${default})."`
	LogFormat string `default:"text" enum:"text,json" placeholder:"FORMAT" help:"text or json, on stderr (${default})."`
}

// outsideFlags are the settings of what a node gives to other systems.
type outsideFlags struct {
	BackupTo     string   `placeholder:"s3://BUCKET/PREFIX" help:"Make backups by a schedule, there; credentials as for carillon ctl backup (none)."`
	BackupEvery  string   `default:"${backup_every}" placeholder:"CRON" help:"When, as five fields of cron, UTC (${default})."`
	BackupKeep   int      `default:"${backup_keep}" placeholder:"N" help:"How many of them stay, 1–10000 (${default})."`
	OTLPEndpoint string   `name:"otlp-endpoint" placeholder:"URL" help:"Report traces to this OpenTelemetry collector, http://host:4318 (OTEL_EXPORTER_OTLP_ENDPOINT, else off)."`
	TraceSample  *float64 `placeholder:"PART" help:"Part of the changes that come without a trace and are traced, 0–1 (OTEL_TRACES_SAMPLER_ARG, else 0.01)."`
	Admin        string   `placeholder:"HOST:PORT" help:"Address of a server for Go profiles, loopback only (off)."`
}

// Help is shown above the flags.
func (*serveCmd) Help() string {
	return "Each flag is also an environment variable (--log-level is CARILLON_LOG_LEVEL) and, but for --config itself, " +
		"a key of --config's file (log_level). The flag goes before the environment, the environment before the file. " +
		"An address with port 0 takes a free one.\n\n" +
		"SIGTERM or SIGINT finishes the calls in flight and exits; a second one exits at once. SIGHUP reads the auth file, keys and certificates again, and opens the audit log again."
}

func (*serveCmd) Examples() string {
	return `carillon serve                                    durable, on loopback, data in ./carillon-data
carillon serve --http 127.0.0.1:8000 --data /var/lib/carillon
carillon serve --http 0.0.0.0:7700 --auth-file tokens.yaml --callback-allow 10.0.0.0/8
carillon serve --test-clock=2026-01-01T00:00:00Z --data /tmp/rehearsal
carillon serve --config carillon.yaml            one of several nodes: see docs/cluster.md`
}

// Validate is called by the parser. The values checked here would be taken for "not set" further
// down.
func (s *serveCmd) Validate() error {
	for _, n := range []struct {
		flag  string
		value int
		takes string
	}{{"bootstrap-expect", s.BootstrapExpect, "1–99"}, {"replicas", s.Replicas, "1–7"}, {"shards", s.Shards, "1–65535"},
		{"max-connections", s.MaxConnections, "16–1000000"}, {"max-calls", s.MaxCalls, "16–65536"}, {"backup-keep", s.BackupKeep, "1–10000"}} {
		if n.value == 0 {
			return terminal.Usagef("--%s: 0 is out of %s", n.flag, n.takes)
		}
	}
	if s.TopicIdle == 0 {
		return terminal.Usagef("--topic-idle: 0s is less than 1s")
	}
	return nil
}

// flushTime is how long a node that has ended waits for the reader of its output.
const flushTime = time.Second

func (s *serveCmd) Run(term *terminal.Terminal) error {
	ignoreSignalsOfOutput()
	keepCrashFromBlocking(term)
	lines := terminal.NewLog(term.Err, s.logHandler)
	go lines.Run()
	defer lines.Close(flushTime)
	logger := slog.New(s.logHandler(lines))
	slog.SetDefault(logger) // also of libraries that write to package log
	admin, err := s.bindAdmin()
	if err != nil {
		return err
	}
	defer admin.close()
	n, err := node.New(s.config(admin, logger, lines.Counts))
	if err != nil {
		return terminal.Usagef("%v", err)
	}
	ctx, release := terminal.UntilSignal(term)
	defer release()
	defer keepMonitorAwake(ctx)()
	go paceGC(ctx)
	if soft := n.MemoryLimit().Soft(); soft > 0 {
		debug.SetMemoryLimit(soft)
	}
	onHangup(ctx, func() {
		if err := n.Reload(); err != nil {
			logger.Error("not everything was read again; what was not is as before", "error", err)
			return
		}
		logger.Info("read the auth file, keys and certificates again")
	})
	defer s.startAdmin(ctx, admin, logger)()
	announcing, served := make(chan struct{}), false
	go func() {
		defer close(announcing)
		if served = n.AwaitReady(ctx); served {
			debug.FreeOSMemory() // the time of reading the log
			where := n.URL()
			if n.OnAllInterfaces() {
				where += ", and on all other interfaces"
			}
			terminal.WriteWithin(flushTime, term.Out, fmt.Sprintf("carillon: ready on %s, data in %s; Ctrl-C stops it\n", where, s.Data))
		}
	}()
	err = n.Run(ctx)
	release() // ends the announcement of a node that failed before it was ready
	<-announcing
	// A later start finds the same again: it is a failure that no restart repairs.
	if errors.Is(err, node.ErrRemoved) && served {
		logger.Info("the cluster has removed this node; its data directory can be deleted", "data", s.Data)
		return nil
	}
	return err
}

// config is the configuration that the flags give.
func (s *serveCmd) config(admin *adminServer, logger *slog.Logger, logCounts func() (waiting, lost int64)) node.Config {
	return node.Config{
		DataDir:         s.Data,
		HTTP:            s.HTTP,
		HTTPHosts:       s.HTTPHost,
		CORSOrigins:     s.CORSOrigin,
		Peer:            s.Peer,
		Gossip:          s.Gossip,
		Advertise:       s.Advertise,
		Name:            s.Name,
		Zone:            s.Zone,
		Join:            s.Join,
		BootstrapExpect: s.BootstrapExpect,
		Replicas:        s.Replicas,
		Shards:          s.Shards,
		HistoryBytes:    int64(s.HistoryBytes),
		MemoryLimit:     int64(s.MemoryLimit),
		KnownTopicsOnly: !s.AutoCreateTopics,
		NoConsole:       !s.Console,
		TopicIdle:       s.TopicIdle,
		GossipKeyFile:   s.GossipKey,
		SecretsKeyFile:  s.SecretsKey,
		PeerCert:        s.PeerCert,
		PeerKey:         s.PeerKey,
		PeerCA:          s.PeerCA,
		Insecure:        s.InsecureNoAuth,
		AuthFile:        s.AuthFile,
		HTTPCert:        s.HTTPCert,
		HTTPKey:         s.HTTPKey,
		HTTPClientCA:    s.HTTPClientCA,
		AuditLog:        s.AuditLog,
		CallbackAllow:   s.CallbackAllow,
		MaxConnections:  s.MaxConnections,
		FeatureLevel:    s.FeatureLevel,
		MaxCalls:        s.MaxCalls,
		Own:             admin.addresses(),
		Version:         version(),
		Logger:          logger,
		Alone:           node.Alone{TestClock: time.Time(s.TestClock)},
		Outside: node.Outside{
			BackupTo: s.BackupTo, BackupEvery: s.BackupEvery, BackupKeep: s.BackupKeep,
			OTLPEndpoint: s.OTLPEndpoint, TraceSample: s.TraceSample,
			LogCounts: logCounts,
		},
	}
}

// bindAdmin binds the port of the profiles; nil when they are off.
func (s *serveCmd) bindAdmin() (*adminServer, error) {
	if s.Admin == "" {
		return nil, nil
	}
	return listenAdmin(s.Admin)
}

// startAdmin serves profiles next to the node; its loss is logged and stops nothing.
func (s *serveCmd) startAdmin(ctx context.Context, admin *adminServer, logger *slog.Logger) (stop func()) {
	if admin == nil {
		return func() {}
	}
	// Profiles stay reachable while the node drains.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := admin.run(ctx); err != nil {
			logger.Error("the profile server ended", "error", err)
		}
	}()
	logger.Info("profiles", "url", "http://"+admin.listener.Addr().String()+"/debug/pprof/")
	return func() { cancel(); <-done }
}

func (s *logSettings) logHandler(out io.Writer) slog.Handler {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		panic(errors.Join(errors.New("--log-level was not checked"), err))
	}
	options := &slog.HandlerOptions{Level: level}
	if s.LogFormat == "json" {
		return slog.NewJSONHandler(out, options)
	}
	return slog.NewTextHandler(out, options)
}
