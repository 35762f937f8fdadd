package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

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
