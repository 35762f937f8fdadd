package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"carillon/cmd/carillon/terminal"
	"carillon/node"
)

// serveCmd is the table of a node's settings: one field, here or in node.Config, is one flag, one
// environment variable and one key of the configuration file. docs/operations.md lists them; a test
// holds it to this.
type serveCmd struct {
	node.Config      `embed:""`
	AutoCreateTopics bool   `default:"true" negatable:"" help:"Adds make unknown topics (${default})."`
	Console          bool   `default:"true" negatable:"" help:"Show the console, a page for people, at / of the API (${default})."`
	Admin            string `placeholder:"HOST:PORT" help:"Address of a server for Go profiles, loopback only (off)."`
	ConfigFile       string `name:"config" placeholder:"FILE" help:"YAML file with any of these settings."`
	logSettings      `embed:""`

	unused []unusedKey
}

// logSettings is what a node logs.
type logSettings struct {
	LogLevel  string `default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" help:"debug, info, warn or error (${default})."`
	LogFormat string `default:"text" enum:"text,json" placeholder:"FORMAT" help:"text or json, on stderr (${default})."`
}

// flushTime is how long a node that has ended waits for the reader of its output.
const flushTime = time.Second

// ignoreSignalsOfOutput makes a write to an output that is gone an error. By default the process
// would end: at a closed pipe, or a file as large as a file may be. A terminal that does not let
// background processes write would stop it.
func ignoreSignalsOfOutput() { signal.Ignore(syscall.SIGPIPE, syscall.SIGXFSZ, syscall.SIGTTOU) }

func (s *serveCmd) Run(term *terminal.Terminal, c *commandLine) error {
	ignoreSignalsOfOutput()
	hangups := receiveHangups()
	keepCrashFromBlocking(term)
	lines := terminal.NewLog(term.Err, s.logHandler)
	go lines.Run()
	defer lines.Close(flushTime)
	logger := slog.New(s.logHandler(lines))
	slog.SetDefault(logger) // also of libraries that write to package log
	for _, u := range s.unused {
		logger.Warn("a value of the configuration file is not used: another one goes first", "key", u.key, "by", u.by)
	}
	admin, err := listenAdmin(s.Admin)
	if err != nil {
		return err
	}
	defer admin.close()
	config := s.Config
	config.KnownTopicsOnly, config.NoConsole = !s.AutoCreateTopics, !s.Console
	config.Own, config.Version, config.Logger, config.LogCounts = admin.addresses(), version(), logger, lines.Counts
	n, err := node.New(config)
	if err != nil {
		return terminal.Usagef("%s", withDashes(err.Error(), c))
	}
	ctx, release := terminal.UntilSignal(term)
	defer release()
	defer keepMonitorAwake(ctx)()
	go paceGC(ctx)
	if soft := n.MemoryLimit().Soft(); soft > 0 {
		debug.SetMemoryLimit(soft)
	}
	hangups.handle(ctx, func() {
		if err := n.Reload(); err != nil {
			logger.Error("the reload failed in part; the files named here keep their old values", "error", err)
			return
		}
		logger.Info("read the auth file, keys and certificates again")
	})
	defer admin.start(logger)()
	announcing, served := make(chan struct{}), false
	go func() {
		defer close(announcing)
		if served = n.AwaitReady(ctx); served {
			debug.FreeOSMemory() // the time of reading the log
			where := n.URL()
			if n.OnAllInterfaces() {
				where += ", and on all other interfaces"
			}
			terminal.WriteWithin(flushTime, term.Out, fmt.Sprintf("carillon: ready on %s, data in %s; Ctrl-C stops it\n", where, s.DataDir))
		}
	}()
	err = n.Run(ctx)
	release() // ends the announcement of a node that failed before it was ready
	<-announcing
	if removedInService(err, served) {
		logger.Info("the cluster has removed this node; its data directory can be deleted", "data", s.DataDir)
		return nil
	}
	return err
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
