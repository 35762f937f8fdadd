package terminal

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// lastWords is how long a process that is to stop at once waits for its output.
const lastWords = 100 * time.Millisecond

// UntilSignal is a context that ends with the first SIGINT or SIGTERM; a command that runs under it
// winds up and returns. A second signal ends the process at once: that is for operators in a hurry,
// and it loses nothing that was acknowledged. The release must be called when nothing runs any
// more.
func UntilSignal(term *Terminal) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case <-signals:
			cancel()
		case <-done:
			return
		}
		select {
		case <-signals:
			WriteWithin(lastWords, term.Err, "carillon: second signal, stopping at once\n")
			os.Exit(1)
		case <-done:
		}
	}()
	return ctx, sync.OnceFunc(func() {
		signal.Stop(signals)
		close(done)
		cancel()
	})
}
