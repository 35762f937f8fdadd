package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"carillon/cmd/carillon/demo"
	"carillon/cmd/carillon/terminal"
)

// demoCmd shows a cluster losing a node, with processes of this very program.
type demoCmd struct {
	Duration time.Duration `default:"30s" help:"Duration, without starting and stopping the nodes (${default}); 5s at least."`
	Nodes    int           `default:"3" placeholder:"N" help:"Nodes, 1–7 (${default})."`
}

func (c *demoCmd) Run(term *terminal.Terminal) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("demo: find this program: %w", err)
	}
	env, err := withoutSettings(os.Environ())
	if err != nil {
		return err
	}
	ctx, release := untilDemoEnds()
	defer release()
	// When the reader of the output ends, such as head, the nodes must end, too.
	signal.Ignore(syscall.SIGPIPE)
	result, err := demo.Run(ctx, demo.Config{Nodes: c.Nodes, Duration: c.Duration, Executable: self, Env: env, Out: term.Out})
	switch {
	case errors.Is(err, demo.ErrConfig):
		return terminal.Usagef("%v", err)
	case err != nil:
		return err
	}
	if failures := result.Failures(); len(failures) > 0 {
		return fmt.Errorf("the cluster broke its promise: %s", strings.Join(failures, ", "))
	}
	return nil
}

// untilDemoEnds is a context that ends with the first signal. Others change nothing: the nodes must
// end and their files be removed, which takes seconds. A terminal that is closed is such a signal;
// nodes would outlive it.
func untilDemoEnds() (ctx context.Context, release func()) {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // by nohup
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(context.Background(), signals...)
}

// withoutSettings leaves out the variables that are settings of a node: those of the demo are its
// own.
func withoutSettings(env []string) ([]string, error) {
	parser, err := newParser(new(cli), &terminal.Terminal{})
	if err != nil {
		return nil, fmt.Errorf("command line: %w", err)
	}
	var names []string
	for _, flag := range serveFlags(parser.Model) {
		names = append(names, settingEnv(flag.Name))
	}
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(names, name)
	}), nil
}
