package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// ignoreSignalsOfOutput makes a write to an output that is gone an error. By default the process
// would end: at a closed pipe, or a file as large as a file may be. A terminal that does not let
// background processes write would stop it.
func ignoreSignalsOfOutput() { signal.Ignore(syscall.SIGPIPE, syscall.SIGXFSZ, syscall.SIGTTOU) }

// onHangup calls reload at each SIGHUP until the context ends. It returns at once.
func onHangup(ctx context.Context, reload func()) {
	hangups := make(chan os.Signal, 1) // one waiting is enough: reload reads all there is
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-hangups:
				reload()
			case <-ctx.Done():
				return
			}
		}
	}()
}
