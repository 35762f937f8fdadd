package sink

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"carillon/test/testkit"
)

// output is a buffer that the sink's goroutine writes and the test reads.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start runs a sink on a free port; stop ends it and returns its output.
func start(t *testing.T, config Config) (s *Sink, url string, stop func() string) {
	t.Helper()
	out := new(output)
	config.Listen, config.Out = "127.0.0.1:0", out
	s, err := New(config)
	testkit.Must(t, err)
	address, err := s.Listen()
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, "http://" + address, func() string {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		return out.String()
	}
}

// call posts one callback and returns the status.
func call(t *testing.T, url, body string, headers ...string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(body))
	testkit.Must(t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	testkit.Must(t, err)
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

func TestSinkCountsAndPrints(t *testing.T) {
	s, url, stop := start(t, Config{Print: true, Status: 204})
	due := fmt.Sprint(time.Now().UnixMilli() - 5)
	future := fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())
	one := []string{"Carillon-Topic", "orders", "Carillon-Timer", "{o1}close", "Carillon-Due", due}
	for _, headers := range [][]string{
		{"Carillon-Attempt", "1", "Carillon-Fence", "7"},
		{"Carillon-Attempt", "2", "Carillon-Fence", "8"},
		{"Carillon-Attempt", "1", "Carillon-Fence", "7"},
		{"Carillon-Attempt", "2", "Carillon-Fence", "8"},
		{"Carillon-Attempt", "1", "Carillon-Fence", "9", "Carillon-Due", future},
	} {
		if got := call(t, url, `{"order": 77}`, append(one, headers...)...); got != 204 {
			t.Errorf("status = %d, want 204", got)
		}
	}
	want := Counts{Received: 5, Succeeded: 5, Retries: 2, Early: 1, Repeated: 1, StaleFence: 1}
	if got := s.Counts(); got != want {
		t.Errorf("counts = %+v, want %+v", got, want)
	}
	printed := stop()
	for _, want := range []string{
		"orders/{o1}close  attempt 1  late ", `13 B  -> 204  {"order": 77}`,
		"! fence is lower than one seen before", "! this fence came before", "! early",
		"sink: received 5  failed 0  retries 2  early 1  repeated 1  stale fence 1",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("output lacks %q:\n%s", want, printed)
		}
	}
}

func TestSinkChecksSignatures(t *testing.T) {
	s, url, stop := start(t, Config{Secret: []string{vectorSecret}})
	if got := call(t, url, `{"test": 2432232314}`); got != 401 {
		t.Errorf("unsigned: status = %d, want 401", got)
	}
	if got := call(t, url, "x", "webhook-id", "a", "webhook-timestamp", fmt.Sprint(time.Now().Unix()), "webhook-signature", "v1,x"); got != 401 {
		t.Errorf("wrongly signed: status = %d, want 401", got)
	}
	if got := s.Counts(); got.BadSignature != 2 || got.Failed != 2 {
		t.Errorf("counts = %+v, want 2 bad signatures", got)
	}
	if printed := stop(); !strings.Contains(printed, "! no signature") {
		t.Errorf("a fault is not printed:\n%s", printed)
	}
}

// TestSinkOfManyTimers: a call for many is judged timer by timer, and its answer names what fails.
func TestSinkOfManyTimers(t *testing.T) {
	const two = `{"timers":[{"topic":"o","id":"a","webhook_id":"m1","due_ms":1,"attempt":1,"fence":7,"payload":{"n":1}},` +
		`{"topic":"o","id":"b","webhook_id":"m2","due_ms":1,"attempt":1,"fence":8,"payload_base64":"Yg=="}]}`
	send := func(config Config, body string) (status int, answer string, c Counts, printed string) {
		s, err := New(config)
		testkit.Must(t, err)
		d := &Delivery{Topic: []byte("o"), Body: []byte(body), DueMs: -1, AskedMs: -1, Attempt: -1, Fence: -1}
		status = s.receive(d)
		out := new(output)
		s.printer.out = out
		s.printer.flush()
		return status, string(d.Answer), s.Counts(), out.String()
	}
	status, answer, c, printed := send(Config{Print: true}, two)
	if status != 200 || answer != `{"failed":[]}` || c.Received != 2 || c.Succeeded != 2 || !strings.Contains(printed, "o/a  attempt 1") || !strings.Contains(printed, `-> 200  {"n":1}`) || !strings.Contains(printed, "o/b") {
		t.Errorf("%d %s %+v\n%s", status, answer, c, printed)
	}
	status, answer, c, _ = send(Config{FailRate: 1}, two)
	if status != 200 || !strings.Contains(answer, `"m1"`) || !strings.Contains(answer, `"m2"`) || c.Failed != 2 {
		t.Errorf("%d %s %+v", status, answer, c)
	}
	if status, answer, _, _ = send(Config{}, "{}"); status != 400 || answer != "" {
		t.Errorf("%d %s", status, answer)
	}
}

func TestSinkFailsTheShareThatTheSeedSays(t *testing.T) {
	draw := func(seed uint64) (failed int, pattern string) {
		s, err := New(Config{FailRate: 0.25, Seed: seed})
		testkit.Must(t, err)
		for range 4000 {
			status, _ := s.judge(&Delivery{Fence: -1, DueMs: -1})
			if status == 500 {
				failed++
			}
			pattern += fmt.Sprint(status / 100)
		}
		return failed, pattern
	}
	failed, first := draw(1)
	if failed < 900 || failed > 1100 {
		t.Errorf("%d of 4000 failed, want about 1000", failed)
	}
	if _, again := draw(1); again != first {
		t.Error("the same seed chose other calls")
	}
	if _, other := draw(2); other == first {
		t.Error("another seed chose the same calls")
	}
}

func TestSinkStopsWhileItWaits(t *testing.T) {
	s, url, stop := start(t, Config{Latency: 10 * time.Minute})
	answered := make(chan int, 1)
	go func() { answered <- call(t, url, "x") }()
	for s.Counts().Received == 0 { // the call is in the handler
		runtime.Gosched()
	}
	stop()
	if got := <-answered; got != 200 {
		t.Errorf("status = %d, want 200", got)
	}
}

func TestPrinterIsBounded(t *testing.T) {
	out := new(output)
	p := newPrinter(out)
	for range 10 * linesPerSecond {
		p.offer(&Delivery{DueMs: -1}, 200, "")
	}
	p.flush()
	if got := strings.Count(out.String(), "\n"); got != linesPerSecond {
		t.Errorf("%d lines, want %d", got, linesPerSecond)
	}
	if got := p.skipped.Load(); got != 9*linesPerSecond {
		t.Errorf("%d skipped, want %d", got, 9*linesPerSecond)
	}
}

func TestVisibleEscapes(t *testing.T) {
	for in, want := range map[string]string{
		"plain":          "plain",
		`{"a": 1}`:       `{"a": 1}`,
		"\x1b[31mred":    `"\x1b[31mred"`,
		"a\nb":           `"a\nb"`,
		`{"a": "` + "\n": `"{\"a\": \"\n"`,
		"12345678901":    "1234567890…",
	} {
		if got := visible([]byte(in), 10); got != want {
			t.Errorf("visible(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestConfigFaults(t *testing.T) {
	_, err := New(Config{Status: 99, Latency: -1, FailRate: 2})
	if err == nil {
		t.Fatal("a bad configuration was taken")
	}
	for _, want := range []string{"status", "latency", "fail rate"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name the %s: %v", want, err)
		}
	}
}

func TestDecimal(t *testing.T) {
	for in, want := range map[string]int64{"": -1, "0": 0, "1700000000000": 1700000000000, "-1": -1, "1.5": -1, "1234567890123456789": -1} {
		if got := Decimal([]byte(in)); got != want {
			t.Errorf("Decimal(%q) = %d, want %d", in, got, want)
		}
	}
}
