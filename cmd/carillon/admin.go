package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof" // registers with the mux that the server has by default, and nobody else
	"net/netip"
	"time"

	"carillon/cmd/carillon/terminal"
)

// adminServer serves Go's profiles, to every client that can reach its address: it has no
// credentials.
type adminServer struct{ listener net.Listener }

// listenAdmin binds to loopback only: a profile shows memory, which holds payloads and secrets.
// nil: there is no address, profiles are off.
func listenAdmin(address string) (*adminServer, error) {
	if address == "" {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, terminal.Usagef("--admin: %q is not host:port, such as 127.0.0.1:7709", address)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, terminal.Usagef("--admin: %s is not loopback; profiles show memory and ask for no token", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--admin: %w", err)
	}
	return &adminServer{listener}, nil
}

// addresses is where it listens; nobody may be sent there.
func (a *adminServer) addresses() []netip.AddrPort {
	if a == nil {
		return nil
	}
	return []netip.AddrPort{netip.MustParseAddrPort(a.listener.Addr().String())}
}

// close is for one that does not run.
func (a *adminServer) close() {
	if a != nil {
		_ = a.listener.Close()
	}
}

// start serves next to the node, also while that drains, until it is stopped; its loss is logged
// and stops nothing.
func (a *adminServer) start(logger *slog.Logger) (stop func()) {
	if a == nil {
		return func() {}
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("the profile server ended", "error", fmt.Errorf("--admin: %w", err))
		}
	}()
	logger.Info("serving Go profiles", "url", "http://"+a.listener.Addr().String()+"/debug/pprof/")
	return func() { _ = server.Close(); <-done }
}
