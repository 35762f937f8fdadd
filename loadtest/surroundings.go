package loadtest

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"carillon/client"
)

// Surroundings are the context of a figure: which servers, and the machine that the tester ran on,
// which on loopback is the servers' as well.
type Surroundings struct {
	Servers []string `json:"servers"` // versions, each once; empty: none was named
	// Of the tester's machine: those that it may use.
	Cores  int    `json:"cores"`
	System string `json:"system"` // its kernel
	// Of the servers' logs during the run; 0: not known.
	FsyncMs float64 `json:"fsync_p50_ms,omitempty"`
}

func (s Surroundings) String() string {
	servers := "unknown"
	if len(s.Servers) > 0 {
		servers = strings.Join(s.Servers, ", ")
	}
	text := fmt.Sprintf("server %s; tester on %d cores, %s", servers, s.Cores, s.System)
	if s.FsyncMs > 0 {
		text += fmt.Sprintf("; fsync p50 about %.2g ms", s.FsyncMs)
	}
	return text
}

// lookAround asks the servers for their releases. A server that does not name one is no fault.
func (r *run) lookAround(ctx context.Context) Surroundings {
	s := Surroundings{Cores: runtime.NumCPU(), System: kernel()}
	r.askEach(ctx, "/healthz", func(body []byte) {
		var health struct {
			Version string `json:"version"`
		}
		if json.Unmarshal(body, &health) == nil && health.Version != "" && len(health.Version) <= 100 && !slices.Contains(s.Servers, plain(health.Version)) {
			s.Servers = append(s.Servers, plain(health.Version))
		}
	})
	return s
}

// paused is a topic of the run that is paused; "": none is, as far as the token may see.
func (r *run) paused(ctx context.Context) (name string) {
	ours := map[string]bool{}
	for topic := range r.names.topics {
		ours[string(r.names.appendTopic(nil, topic))] = true
	}
	r.askEach(ctx, "/v1/topics?limit=1000&prefix="+r.config.Topic, func(body []byte) {
		var list struct {
			Topics []struct {
				Topic  string
				Paused bool
			}
		}
		if json.Unmarshal(body, &list) != nil {
			return
		}
		for _, t := range list.Topics {
			if t.Paused && ours[t.Topic] {
				name = t.Topic
			}
		}
	})
	return name
}

// askEach gives the answers of the servers that give one.
func (r *run) askEach(ctx context.Context, path string, take func(body []byte)) {
	transport := &http.Transport{DialContext: r.network.dial, TLSClientConfig: r.tls.Clone(), DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	for _, address := range r.config.URL {
		c, err := client.New([]string{address}, client.Options{HTTP: &http.Client{Transport: transport}, Retries: -1, Token: r.config.Token})
		if err != nil {
			continue
		}
		within, cancel := context.WithTimeout(ctx, r.config.Timeout)
		body, err := c.Do(within, client.Request{Method: http.MethodGet, Path: path})
		cancel()
		if err == nil {
			take(body)
		}
	}
}

// buckets are a Prometheus histogram: how many took at most each number of seconds.
type buckets map[float64]float64

// fsyncs are those of the servers' logs so far, if the token may see them.
func (r *run) fsyncs(ctx context.Context) buckets {
	b := buckets{}
	r.askEach(ctx, "/metrics", func(body []byte) {
		for line := range strings.Lines(string(body)) {
			rest, of := strings.CutPrefix(line, `carillon_wal_fsync_seconds_bucket{le="`)
			le, count, found := strings.Cut(strings.TrimSpace(rest), `"} `)
			if !of || !found {
				continue
			}
			atMost, err1 := strconv.ParseFloat(le, 64)
			n, err2 := strconv.ParseFloat(count, 64)
			if err1 == nil && err2 == nil {
				b[atMost] += n
			}
		}
	})
	return b
}

// medianSince is the median, in ms, of those that came after an earlier look: within its bucket as
// if they were spread evenly. 0: there were none.
func (b buckets) medianSince(before buckets) float64 {
	bounds := slices.Sorted(maps.Keys(b))
	if len(bounds) == 0 {
		return 0
	}
	last := bounds[len(bounds)-1]
	half := (b[last] - before[last]) / 2
	low, below := 0.0, 0.0
	for _, bound := range bounds {
		upTo := b[bound] - before[bound]
		if upTo >= half && upTo > below && !math.IsInf(bound, 1) {
			return 1000 * (low + (bound-low)*(half-below)/(upTo-below))
		}
		low, below = bound, upTo
	}
	return 0
}

// kernel names the tester's operating system, with the release where that is to be had.
func kernel() string {
	name := runtime.GOOS + "/" + runtime.GOARCH
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		name += " " + strings.TrimSpace(string(release))
	}
	return name
}
