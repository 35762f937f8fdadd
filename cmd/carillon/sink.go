package main

import (
	"carillon/cmd/carillon/terminal"
	"carillon/loadtest/sink"
)

// sinkCmd has the flags of sink.Config.
type sinkCmd struct{ sink.Config }

func (*sinkCmd) Examples() string {
	return `carillon sink
carillon sink --latency 50ms --fail-rate 0.2     a slow receiver that fails one call in five
carillon sink --secret whsec_…                   check signatures`
}

func (c *sinkCmd) Run(term *terminal.Terminal) error {
	c.Out = term.Out
	s, err := sink.New(c.Config)
	if err != nil {
		return terminal.Usagef("%v", err)
	}
	ctx, release := terminal.UntilSignal(term)
	defer release()
	return s.Run(ctx)
}
