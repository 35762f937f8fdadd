package node

import (
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"carillon/test/sim/forged"
)

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

// TestTextsAreNoReceipts: nothing that a client can write is a lease.
func TestTextsAreNoReceipts(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	given := (&receipt{shard: 1, topic: 2, handle: 3, seq: 4, fence: 5}).seal(secret)
	if _, ok := openReceipt(secret, given); !ok {
		t.Fatal("a receipt is none")
	}
	other := (&receipt{shard: 1, topic: 2, handle: 3, seq: 4, fence: 5}).seal([]byte("another cluster's"))
	for name, text := range forged.Texts() {
		for _, try := range []string{text, other, given + text, text + given, given[:len(given)-1]} {
			if r, ok := openReceipt(secret, try); ok {
				t.Errorf("%s: %q is the lease %+v", name, try, r)
			}
		}
	}
}
