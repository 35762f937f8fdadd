package main

import (
	"context"
	"io"
	"net/http"
	"time"
)

// readyPoll is short beside the second in which a node should be ready, and costs nothing.
const readyPoll = 20 * time.Millisecond

// awaitReady asks the node at the address, as any client would, until it says that it is ready. It returns false
// if the context ends first. address answers "" until the node has bound.
func awaitReady(ctx context.Context, address func() string) bool {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{}} // no proxy: it is this very process
	defer client.CloseIdleConnections()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		if isReady(ctx, client, address()) {
			return true
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
}

func isReady(ctx context.Context, client *http.Client, address string) bool {
	if address == "" {
		return false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection is used again
	return resp.StatusCode == http.StatusOK
}
