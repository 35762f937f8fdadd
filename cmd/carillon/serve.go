package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"runtime/debug"

	"carillon/node"
)

// serveCmd is the table of a node's settings: one field is one flag, one environment variable and one key of the
// configuration file. docs/operations.md lists them; a test holds it to this.
type serveCmd struct {
	Data           string         `default:"${data}" placeholder:"DIR" help:"Where everything is kept (${default})."`
	HTTP           string         `name:"http" default:"${http}" placeholder:"HOST:PORT" help:"Address of the API (${default}); port 0 takes a free one."`
	Name           string         `placeholder:"NAME" help:"The node's name, for people (the host's name)."`
	Shards         int            `default:"${shards}" placeholder:"N" help:"Parts that timers are divided among, 1–65535, fixed by the first start (${default})."`
	Config         string         `placeholder:"FILE" help:"YAML file with any of these settings."`
	AuthFile       string         `placeholder:"FILE" help:"YAML list of tokens; without it nobody is asked for one. Read again on SIGHUP."`
	InsecureNoAuth bool           `name:"insecure-no-auth" help:"Allow an address that is not loopback without credentials."`
	CallbackAllow  []netip.Prefix `placeholder:"CIDR,…" help:"Networks that receivers may be in, besides public ones."`
	Admin          string         `placeholder:"HOST:PORT" help:"Address of a server for Go profiles, loopback only (off)."`
	LogLevel       string         `default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" help:"debug, info, warn or error (${default})."`
	LogFormat      string         `default:"text" enum:"text,json" placeholder:"FORMAT" help:"text or json, on stderr (${default})."`
}

// Help is shown above the flags.
func (*serveCmd) Help() string {
	return "Each flag is also an environment variable (--log-level is CARILLON_LOG_LEVEL) and, but for --config itself, " +
		"a key of --config's file (log_level). The flag goes before the environment, the environment before the file.\n\n" +
		"SIGTERM or SIGINT finishes the calls in flight and exits; a second one exits at once. SIGHUP reads the auth file again."
}

func (*serveCmd) Examples() string {
	return `carillon serve                                    durable, on loopback, data in ./carillon-data
carillon serve --http 127.0.0.1:8000 --data /var/lib/carillon
carillon serve --http 0.0.0.0:7700 --auth-file tokens.yaml --callback-allow 10.0.0.0/8`
}

func (s *serveCmd) Run(term *terminal) error {
	logger := s.logger(term.err)
	n, err := node.New(node.Config{
		DataDir:       s.Data,
		HTTP:          s.HTTP,
		Name:          s.Name,
		Shards:        s.Shards,
		Insecure:      s.InsecureNoAuth,
		AuthFile:      s.AuthFile,
		CallbackAllow: s.CallbackAllow,
		Version:       version(),
		Logger:        logger,
	})
	if err != nil {
		return usagef("%v", err)
	}
	ctx, release := untilSignal(term)
	defer release()
	go paceGC(ctx)
	onHangup(ctx, func() {
		if err := n.Reload(); err != nil {
			logger.Error("the auth file was not read again; the tokens from before still hold", "error", err)
			return
		}
		logger.Info("read the auth file again")
	})
	if s.Admin != "" {
		stopAdmin, err := s.startAdmin(ctx, logger)
		if err != nil {
			return err
		}
		defer stopAdmin()
	}
	announcing := make(chan struct{})
	go func() {
		defer close(announcing)
		if awaitReady(ctx, n.Addr) {
			debug.FreeOSMemory() // what reading the log took
			fmt.Fprintf(term.out, "carillon: ready on http://%s, data in %s; Ctrl-C stops it\n", n.Addr(), s.Data)
		}
	}()
	err = n.Run(ctx)
	release() // ends the announcement of a node that failed before it was ready
	<-announcing
	return err
}

// startAdmin serves profiles beside the node; its loss is logged and stops nothing.
func (s *serveCmd) startAdmin(ctx context.Context, logger *slog.Logger) (stop func(), err error) {
	admin, err := listenAdmin(s.Admin)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // profiles stay reachable while the node drains
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := admin.run(ctx); err != nil {
			logger.Error("the profile server ended", "error", err)
		}
	}()
	logger.Info("profiles", "url", "http://"+admin.listener.Addr().String()+"/debug/pprof/")
	return func() { cancel(); <-done }, nil
}

func (s *serveCmd) logger(out io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		panic(errors.Join(errors.New("--log-level was not checked"), err))
	}
	options := &slog.HandlerOptions{Level: level}
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(out, options))
	}
	return slog.New(slog.NewTextHandler(out, options))
}
