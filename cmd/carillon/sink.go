package main

import (
	"carillon/cmd/carillon/terminal"
	"carillon/loadtest/sink"
)

type sinkCmd struct{ sink.Config }

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
