package loadtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"

	"carillon/client"
)

// Surroundings are what a figure is of: which servers, and the machine that the tester ran on, which on loopback is the
// servers' as well.
type Surroundings struct {
	Servers []string `json:"servers"` // versions, each once; empty: none said
	Cores   int      `json:"cores"`   // of the tester's machine, as far as it may use them
	System  string   `json:"system"`  // its kernel
}

// String is for people.
func (s Surroundings) String() string {
	servers := "unknown"
	if len(s.Servers) > 0 {
		servers = strings.Join(s.Servers, ", ")
	}
	return fmt.Sprintf("server %s; tester on %d cores, %s", servers, s.Cores, s.System)
}

// lookAround asks the servers what they run. That one does not say is no fault.
func (r *run) lookAround(ctx context.Context) Surroundings {
	s := Surroundings{Cores: runtime.NumCPU(), System: kernel()}
	transport := &http.Transport{DialContext: r.network.dial, TLSClientConfig: r.tls.Clone(), DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	for _, address := range r.config.URL {
		c, err := client.New([]string{address}, client.Options{HTTP: &http.Client{Transport: transport}, Retries: -1})
		if err != nil {
			continue
		}
		within, cancel := context.WithTimeout(ctx, r.config.Timeout)
		body, err := c.Do(within, client.Request{Method: http.MethodGet, Path: "/healthz"})
		cancel()
		var health struct {
			Version string `json:"version"`
		}
		if err != nil || json.Unmarshal(body, &health) != nil || health.Version == "" || len(health.Version) > 100 {
			continue
		}
		if !slices.Contains(s.Servers, health.Version) {
			s.Servers = append(s.Servers, health.Version)
		}
	}
	return s
}

// kernel is what the tester's machine runs, with the release where that is to be had.
func kernel() string {
	name := runtime.GOOS + "/" + runtime.GOARCH
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		name += " " + strings.TrimSpace(string(release))
	}
	return name
}
