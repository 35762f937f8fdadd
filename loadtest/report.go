package loadtest

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"carillon/loadtest/hist"
)

// Report has the figures and findings of a run.
type Report struct {
	Ops            int64        `json:"ops"` // successful operations in the measured time
	OpsPerSecond   float64      `json:"ops_per_second"`
	Errors         int64        `json:"errors"`
	Latency        hist.Summary `json:"latency_ms"` // per request
	Fired          int64        `json:"fired"`      // timers that arrived, each once
	FiredPerSecond float64      `json:"fired_per_second"`
	Lateness       hist.Summary `json:"lateness_ms"` // due to arrival
	Lost           int64        `json:"lost"`
	Early          int64        `json:"early"`
	Duplicate      int64        `json:"duplicate"`
	// Cores kept busy, the built-in receiver included.
	TesterCPU float64 `json:"tester_cpu"`

	// Cores that it would have kept busy besides, had it had them.
	TesterWaited float64 `json:"tester_waited"`
	Starved      bool    `json:"tester_was_starved"`

	Faults
	Events

	FirstError string           `json:"first_error,omitempty"`
	Foreign    int64            `json:"foreign"` // deliveries of other runs' timers
	ByOp       map[string]int64 `json:"by_operation"`
	Seconds    float64          `json:"seconds"` // measured time
	CutShort   bool             `json:"cut_short"`
	// No server accepted connections at the end: timers counted as lost may only be late.
	Gone         bool         `json:"server_gone"`
	Bottleneck   bool         `json:"tester_was_bottleneck"`
	Config       Config       `json:"config"`
	Started      time.Time    `json:"started"`
	Surroundings Surroundings `json:"surroundings"`
	Receivers    *Receivers   `json:"many_receivers,omitempty"`

	latencyCurve, latenessCurve []hist.Point
	series                      []second
}

// Faults are promises of the server that it broke, besides those in Report. All must be 0.
type Faults struct {
	// Arrived after its cancel was answered "prevented".
	CancelledFired int64 `json:"cancelled_fired"`
	// The old version arrived after its change was acknowledged.
	Stale int64 `json:"stale"`
	// Id, topic, due time or body are not those of one version written, or a header is missing.
	WrongPayload int64 `json:"wrong_payload"`
	// A read did not show the version that was last acknowledged.
	StaleReads int64 `json:"stale_reads"`
	Unexpected int64 `json:"unexpected"` // arrived though its add or change was refused
	Vanished   int64 `json:"vanished"`   // acknowledged, then answered 404
}

// Events are counts that break no promise.
type Events struct {
	Added   int64 `json:"added"`
	Changed int64 `json:"changed"`
	Refused int64 `json:"refused"` // adds answered 4xx
	// Changes without an answer, or answered 5xx.
	Unknown      int64 `json:"unknown"`
	ServerErrors int64 `json:"server_errors"` // operations answered 5xx
	Timeouts     int64 `json:"timeouts"`      // requests
	// Connections refused, cut or not understood.
	Broken    int64 `json:"broken"`
	Prevented int64 `json:"prevented"` // cancels, those after the load included
	// Changes that came too late for their timer.
	Conflicts int64 `json:"conflicts"`
	Dead      int64 `json:"dead"`
	Retries   int64 `json:"retries"`    // deliveries with an attempt above 1
	AddedLate int64 `json:"added_late"` // acknowledged after their due time
	Pending   int64 `json:"pending"`    // left on the server by a run cut short
	// Open loop: requests that the time did not suffice for.
	Unsent int64 `json:"unsent"`
	// External receiver, or a topic is paused: not delivered though due for the grace time.
	Overdue int64  `json:"overdue"`
	Paused  string `json:"paused,omitempty"` // a topic of the run that was, at the end
}

// second is one second of a run, for the charts.
type second struct {
	at                float64 // seconds since the start
	ops, fired        float64 // per second
	latency, lateness hist.Summary
}

// Failures names each broken promise of the server, nothing if it kept them. A
// duplicate is not among them: at-least-once allows it.
func (r Report) Failures() []string {
	var failures []string
	for _, f := range []struct {
		count int64
		what  string
	}{
		{r.Lost, "lost"}, {r.Early, "early"}, {r.CancelledFired, "fired after their cancel was answered prevented"},
		{r.Stale, "fired with an old version after an acknowledged change"},
		{r.WrongPayload, "fired with what nobody wrote"}, {r.Unexpected, "fired though refused"}, {r.StaleReads, "reads that did not show the last acknowledged version"},
	} {
		if f.count > 0 {
			failures = append(failures, fmt.Sprintf("%d %s", f.count, f.what))
		}
	}
	return failures
}

// WriteJSON writes the report as one indented JSON object.
func (r Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("loadtest: write JSON: %w", err)
	}
	return nil
}
