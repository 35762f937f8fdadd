package metrics

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"carillon/transport/api"
)

// HTTP counts requests of the API. The series of a route are made at its first request, so
// that /metrics has no series for calls that nobody makes; from then on counting takes no memory
// and no lock.
type HTTP struct {
	requests *prometheus.CounterVec
	refused  map[int]prometheus.Counter // by status
	seconds  *prometheus.HistogramVec
	names    []string
	routes   []atomic.Pointer[routeMetrics]
}

// firstStatus and statuses are the range of HTTP's statuses.
const (
	firstStatus = 100
	statuses    = 500
)

// routeMetrics are the series of one route.
type routeMetrics struct {
	seconds prometheus.Observer
	codes   [statuses]atomic.Pointer[prometheus.Counter]
}

func NewHTTP(to *prometheus.Registry) *HTTP {
	m := &HTTP{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "carillon_http_requests_total", Help: "Requests of the API by route and status; route none: of unknown paths.",
		}, []string{"route", "code"}),
		refused: map[int]prometheus.Counter{},
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "carillon_http_request_seconds", Help: "Duration of API requests until their answer. Pulls include the time that they asked to wait.",
			Buckets: []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 30},
		}, []string{"route"}),
		names: api.RouteNames(),
	}
	m.routes = make([]atomic.Pointer[routeMetrics], len(m.names))
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "carillon_http_refused_total", Help: "Requests of the API that were refused, by status.",
	}, []string{"code"})
	for _, status := range []int{400, 401, 403, 404, 405, 408, 409, 410, 412, 413, 414, 415, 421, 422, 429, 431} {
		m.refused[status] = refused.WithLabelValues(strconv.Itoa(status))
	}
	to.MustRegister(m.requests, refused, m.seconds)
	return m
}

// Observe is api.Config.Observe.
func (h *HTTP) Observe(route, status int, took time.Duration) {
	r := h.routes[route].Load()
	if r == nil {
		r = &routeMetrics{seconds: h.seconds.WithLabelValues(h.names[route])}
		h.routes[route].Store(r) // two at once make the same
	}
	r.seconds.Observe(took.Seconds())
	code := min(max(status-firstStatus, 0), statuses-1)
	c := r.codes[code].Load()
	if c == nil {
		made := h.requests.WithLabelValues(h.names[route], strconv.Itoa(status))
		c = &made
		r.codes[code].Store(c)
	}
	(*c).Inc()
	if refused := h.refused[status]; refused != nil {
		refused.Inc()
	}
}
