package main

import "carillon/loadtest/sink"

// sinkCmd has the flags of sink.Config.
type sinkCmd struct{ sink.Config }

func (*sinkCmd) Examples() string {
	return `carillon sink
carillon sink --latency 50ms --fail-rate 0.2     a slow receiver that fails one call in five
carillon sink --secret whsec_…                   check signatures`
}

func (c *sinkCmd) Run(term *terminal) error {
	c.Out = term.out
	s, err := sink.New(c.Config)
	if err != nil {
		return usagef("%v", err)
	}
	ctx, release := untilSignal(term)
	defer release()
	return s.Run(ctx)
}
