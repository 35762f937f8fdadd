package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// hangups are the SIGHUPs that are not handled yet.
type hangups chan os.Signal

// receiveHangups begins before a node reads its files: by default a SIGHUP would end the process.
func receiveHangups() hangups {
	h := make(hangups, 1) // one waiting is enough: reload reads all there is
	signal.Notify(h, syscall.SIGHUP)
	return h
}

// handle calls reload at each of them until the context ends. It returns at once.
func (h hangups) handle(ctx context.Context, reload func()) {
	go func() {
		defer signal.Stop(h)
		for {
			select {
			case <-h:
				reload()
			case <-ctx.Done():
				return
			}
		}
	}()
}
