package cluster

import (
	"slices"
	"strings"

	"carillon/transport/api/backend"
	"carillon/transport/api/web"

	"github.com/cespare/xxhash/v2"
)

// Destinations answers the receivers that the cluster calls, those that are unwell first.
func Destinations(rq *web.Request) *web.Problem {
	limit := rq.Query.Limit()
	states, chosen := rq.Query.Value("state")
	wanted := backend.DestinationStates
	if chosen {
		wanted = nil
		for name := range strings.SplitSeq(states, ",") {
			if !slices.Contains(backend.DestinationStates, backend.DestinationState(name)) {
				rq.Query.Reject(web.BadRequest, "query: state must be a comma list of open, half-open, closed")
			}
			wanted = append(wanted, backend.DestinationState(name))
		}
	}
	var after backend.Destination
	given := false
	rq.Query.Cursor(func(c string) bool {
		after, given = parseDestinationCursor(c, states)
		return given
	})
	if p := rq.Query.Problem(); p != nil {
		return p
	}
	list, missing, err := rq.Core.Destinations.Destinations(rq.Base)
	if err != nil {
		return web.Fault(err)
	}
	list = slices.DeleteFunc(list, func(d backend.Destination) bool {
		return !slices.Contains(wanted, d.State) || given && backend.CompareDestinations(d, after) <= 0
	})
	o := web.Object{B: rq.Out()}
	n := min(limit, len(list))
	o.Objects("destinations", n, func(o *web.Object, i int) { destinationMembers(o, &list[i]) })
	o.OptTexts("missing", missing)
	if n < len(list) {
		o.Text("next_cursor", destinationCursor(&list[n-1], states))
	}
	return rq.JSON(200, o.End())
}

func destinationMembers(o *web.Object, d *backend.Destination) {
	o.Text("destination", d.Destination)
	o.Text("state", string(d.State))
	o.OptTime("since", d.SinceMs)
	o.Integer("calls", int64(d.Calls))
	o.Integer("waiting", int64(d.Waiting))
	if d.LatencyUs > 0 {
		o.Float("latency_ms", float64(d.LatencyUs)/1000)
	}
	o.OptText("last_error", d.LastError)
	o.OptTime("failed", d.FailedMs)
	o.OptInteger("failures", d.Failures)
	o.OptTime("next_probe", d.NextProbeMs)
	o.OptTexts("nodes", d.Nodes)
	o.OptTexts("topics", d.Topics)
	o.OptBoolean("more_topics", d.MoreTopics)
}

func destinationCursor(d *backend.Destination, states string) string {
	b := append([]byte{web.CursorDestinations, byte(d.Rank())}, d.Destination...)
	return web.SealCursor(b, xxhash.Sum64String(states))
}

func parseDestinationCursor(s, states string) (after backend.Destination, ok bool) {
	p := web.OpenCursor(s, web.CursorDestinations, xxhash.Sum64String(states))
	if !p.OK || len(p.Rest) < 1 || int(p.Rest[0]) >= len(backend.DestinationStates) {
		return after, false
	}
	return backend.Destination{State: backend.DestinationStates[p.Rest[0]], Destination: string(p.Rest[1:])}, true
}
