package metrics

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"carillon/shard/table"
	"carillon/test/sim/forged"
)

// Counting a request or an attempt takes no memory.
func TestMetricsTakeNoMemory(t *testing.T) {
	m := NewHTTP(prometheus.NewRegistry())
	if n := testing.AllocsPerRun(100, func() { m.Observe(3, 201, time.Millisecond) }); n != 0 {
		t.Errorf("a request: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { m.Observe(3, 403, time.Millisecond) }); n != 0 {
		t.Errorf("a refusal: %v allocations", n)
	}
	m.Observe(0, 7, 0)
	m.Observe(0, 999, 0)
	old := New("test", Sources{})
	if n := testing.AllocsPerRun(100, func() { old.Outcome(1, &table.Outcome{Kind: table.Ack}) }); n != 0 {
		t.Errorf("an attempt: %v allocations", n)
	}
}

func BenchmarkObserveRequest(b *testing.B) {
	m := NewHTTP(prometheus.NewRegistry())
	b.ReportAllocs()
	for b.Loop() {
		m.Observe(3, 201, time.Millisecond)
	}
}

// TestShownLatenessIsOfTheNode: what a pause or a limit delayed does not count in the lateness that
// the console shows.
func TestShownLatenessIsOfTheNode(t *testing.T) {
	m := New("test", Sources{})
	m.Rates.Sample(0)
	m.Lateness(10, false, nil)
	m.Lateness(600_000, true, nil)
	m.Rates.Sample(time.Second)
	count := int64(0)
	for _, n := range m.Rates.Minute().Late {
		count += n
	}
	if count != 1 {
		t.Errorf("%d starts counted, of which one was not held", count)
	}
}

// labelled is a series of each text, as those of topics and destinations are.
type labelled struct{ texts []string }

func (l labelled) Describe(to chan<- *prometheus.Desc) { to <- breakerDesc }

func (l labelled) Collect(to chan<- prometheus.Metric) {
	for i, text := range l.texts {
		to <- prometheus.MustNewConstMetric(breakerDesc, prometheus.GaugeValue, float64(i), text)
	}
}

// TestLabelsOfMetricsAreData: a name that is metrics is one label of one series.
func TestLabelsOfMetricsAreData(t *testing.T) {
	var l labelled
	for _, text := range forged.Texts() {
		if utf8.ValidString(text) { // no topic and no host is anything else
			l.texts = append(l.texts, text)
		}
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(l)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	series := 0
	for line := range strings.SplitSeq(strings.TrimSuffix(w.Body.String(), "\n"), "\n") {
		if !strings.HasPrefix(line, "#") {
			series++
		}
		if line != "" && !strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "carillon_breaker_state{destination=\"") {
			t.Errorf("a line of its own: %q", line)
		}
	}
	if series != len(l.texts) || w.Code != 200 {
		t.Errorf("%d series of %d texts, status %d:\n%s", series, len(l.texts), w.Code, w.Body)
	}
}
