package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" // of the Standard Webhooks examples

// TestStandardWebhooksVector is the example of the specification's reference libraries.
func TestStandardWebhooksVector(t *testing.T) {
	key, err := parseSecret(secret)
	must(t, err)
	got := sign(key, []byte(`msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestSignatureOfValues is the example of docs/callbacks.md.
func TestSignatureOfValues(t *testing.T) {
	key, err := parseSecret(secret)
	must(t, err)
	h := http.Header{}
	for name, v := range map[string]string{
		"Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp": "1614265330", "Carillon-Topic": "orders", "Carillon-Timer": "{o-77}close",
		"Carillon-Due": "1614265330000", "Carillon-Attempt": "2", "Carillon-Fence": "7",
	} {
		h.Set(name, v)
	}
	if got, want := sign(key, signedValues(h)), "v1,gUfpyP4Ajg1OYhURY2R8wSPredmP9gSByJdTfvLph9Q="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// post makes a call as a node does.
func post(h http.Handler, edit func(http.Header), body string, signer string, stamp time.Time) *httptest.ResponseRecorder {
	req := httptest.NewRequest("POST", "/", strings.NewReader(body))
	for name, v := range map[string]string{
		"Webhook-Id": "id1", "Webhook-Timestamp": strconv.FormatInt(stamp.Unix(), 10), "Carillon-Topic": "orders", "Carillon-Timer": "{k}a",
		"Carillon-Due": "1893456000250", "Carillon-Attempt": "2", "Carillon-Fence": "7",
	} {
		req.Header.Set(name, v)
	}
	if signer != "" {
		key, _ := parseSecret(signer)
		req.Header.Set("Webhook-Signature", "v1,AAAA "+sign(key, []byte("id1."+req.Header.Get("Webhook-Timestamp")+"."+body)))
		req.Header.Set("Carillon-Signature", "v1,AAAA "+sign(key, signedValues(req.Header)))
	}
	if edit != nil {
		edit(req.Header)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

// TestReceiverOfAFiredTimer: a call that somebody asked for by hand has the time of the request.
func TestReceiverOfAFiredTimer(t *testing.T) {
	d, err := readDelivery(http.Header{"Carillon-Topic": {"o"}, "Carillon-Timer": {"a"}, "Webhook-Id": {"1"}, "Carillon-Due": {"1893456000250"},
		"Carillon-Asked": {"1893455000000"}, "Carillon-Attempt": {"1"}, "Carillon-Fence": {"7"}, "Content-Type": {"image/png"}}, nil)
	if err != nil || d.ContentType != "image/png" || d.Asked.UnixMilli() != 1893455000000 || d.Due.UnixMilli() != 1893456000250 {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestReceiverOfEvents: a call is read alike in each format of its topic, and as an event where it
// is one.
func TestReceiverOfEvents(t *testing.T) {
	now := time.Unix(1_893_456_000, 0)
	receiver, err := NewReceiver(ReceiverOptions{Secrets: []string{secret}, Now: func() time.Time { return now }})
	must(t, err)
	var got *Delivery
	h := receiver.Handle(func(_ context.Context, d *Delivery) error { got = d; return nil })
	if post(h, nil, "{}", secret, now); got == nil || got.CloudEvent != nil {
		t.Fatalf("a plain call: %+v", got)
	}
	event := func(at string) func(http.Header) {
		return func(h http.Header) {
			for name, v := range map[string]string{"specversion": "1.0", "id": "id1", "source": "/v1/topics/orders", "type": "carillon.timer.due", "subject": "{k}a", "time": at} {
				h.Set("Ce-"+name, v)
			}
			h.Set("Carillon-Fence", "8")
			key, _ := parseSecret(secret)
			h.Set("Carillon-Signature", sign(key, signedValues(h)))
		}
	}
	want := CloudEvent{ID: "id1", Source: "/v1/topics/orders", Type: "carillon.timer.due", Subject: "{k}a", Time: time.UnixMilli(1_893_456_000_250).UTC()}
	post(h, event("2030-01-01T00:00:00.250Z"), "{}", secret, now)
	if got.Fence != 8 || got.Timer != "{k}a" || got.CloudEvent == nil || *got.CloudEvent != want {
		t.Errorf("%+v: %+v", got, got.CloudEvent)
	}
	want.Time = time.Time{}
	if e := readCloudEvent(http.Header{"Ce-Specversion": {"1.0"}, "Ce-Time": {"soon"}}); e == nil || !e.Time.IsZero() {
		t.Errorf("%+v", e)
	}
}

// TestReceiverWithPublicKeys: a receiver that has the topic's public key believes calls that the
// private one has signed, next to a secret, a key before it, or nothing; and nothing else. The
// vector is that of the Standard Webhooks libraries.
func TestReceiverWithPublicKeys(t *testing.T) {
	const (
		public = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
		stamp  = "1614265330"
		ofBody = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
		// Of docs/callbacks.md.
		values = "v1a,dX/VnLFd2k+eGQbgXZG3eQ+MigzyCLITKSfGFrmFKLB3G1j8BedBThWyqZmCgQ2P7chOnlXMheqyFPAqLTbJBA=="
	)
	header := func(body, ofValues string) http.Header {
		h := http.Header{}
		for name, v := range map[string]string{
			"Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "Webhook-Timestamp": stamp, "Carillon-Topic": "orders", "Carillon-Timer": "{o-77}close",
			"Carillon-Due": "1614265330000", "Carillon-Attempt": "2", "Carillon-Fence": "7", "Webhook-Signature": body, "Carillon-Signature": ofValues,
		} {
			h.Set(name, v)
		}
		return h
	}
	private, other := NewSigningKey()
	if !strings.HasPrefix(private, "whsk_") || len(private) != 5+88 {
		t.Errorf("%q", private)
	}
	for name, c := range map[string]struct {
		keys, secrets []string
		h             http.Header
		body          string
		good          bool
	}{
		"good":                           {[]string{public}, nil, header(ofBody, values), "", true},
		"during a rotation":              {[]string{other, public}, nil, header("v1a,AAAA "+ofBody, "v1a,AAAA "+values), "", true},
		"next to a secret":               {[]string{public}, []string{secret}, header("v1,AAAA "+ofBody, "v1,AAAA "+values), "", true},
		"by a secret, whatever the keys": {[]string{other}, []string{secret}, header("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= "+ofBody, "v1,gUfpyP4Ajg1OYhURY2R8wSPredmP9gSByJdTfvLph9Q="), "", true},
		"of another":                     {[]string{other}, nil, header(ofBody, values), "", false},
		"another body":                   {[]string{public}, nil, header(ofBody, values), "{}", false},
		"values that are not signed":     {[]string{public}, nil, header(ofBody, ""), "", false},
		"values signed as the body is":   {[]string{public}, nil, header(ofBody, ofBody), "", false},
		"as a version without keys":      {[]string{public}, nil, header("v1,"+ofBody[4:], "v1,"+values[4:]), "", false},
		"by a secret that it has not":    {[]string{public}, nil, header("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "v1,gUfpyP4Ajg1OYhURY2R8wSPredmP9gSByJdTfvLph9Q="), "", false},
		"too short":                      {[]string{public}, nil, header("v1a,AAAA", "v1a,"), "", false},
	} {
		r, err := NewReceiver(ReceiverOptions{PublicKeys: c.keys, Secrets: c.secrets, Now: func() time.Time { return time.Unix(1614265331, 0) }})
		must(t, err)
		body := `{"test": 2432232314}`
		if c.body != "" {
			body = c.body
		}
		if err := r.Verify(c.h, []byte(body)); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"", private, public + "A", public[5:], "whpk_AAAA"} {
		if _, err := NewReceiver(ReceiverOptions{PublicKeys: []string{bad}}); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := NewReceiver(ReceiverOptions{PublicKeys: []string{public}, Unsigned: true}); err == nil {
		t.Error("a key that nothing is checked with")
	}
}

func TestReceiver(t *testing.T) {
	const other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	now := time.Unix(1_893_456_000, 0)
	var got []Delivery
	open := func(o ReceiverOptions) http.Handler {
		o.Now = func() time.Time { return now }
		r, err := NewReceiver(o)
		must(t, err)
		return r.Middleware(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			d, ok := FromContext(req.Context())
			body, err := io.ReadAll(req.Body)
			if !ok || err != nil || string(body) != string(d.Body) {
				t.Errorf("%v %q %v", ok, body, err)
			}
			got = append(got, *d)
			w.WriteHeader(http.StatusAccepted)
		}))
	}
	header := func(name, value string) func(http.Header) { return func(h http.Header) { h.Set(name, value) } }
	for _, tt := range []struct {
		name   string
		o      ReceiverOptions
		edit   func(http.Header)
		body   string
		signer string
		stamp  time.Time
		want   int
	}{
		{"good", ReceiverOptions{Secrets: []string{secret}}, nil, "{}", secret, now, 202},
		{"good by the second secret", ReceiverOptions{Secrets: []string{other, secret}}, nil, "{}", secret, now.Add(-5 * time.Minute), 202},
		{"of another", ReceiverOptions{Secrets: []string{secret}}, nil, "{}", other, now, 401},
		{"not signed", ReceiverOptions{Secrets: []string{secret}}, nil, "{}", "", now, 401},
		{"old", ReceiverOptions{Secrets: []string{secret}}, nil, "{}", secret, now.Add(-301 * time.Second), 401},
		{"of the future", ReceiverOptions{Secrets: []string{secret}}, nil, "{}", secret, now.Add(301 * time.Second), 401},
		{"tolerance", ReceiverOptions{Secrets: []string{secret}, Tolerance: time.Second}, nil, "{}", secret, now.Add(-2 * time.Second), 401},
		{"another id", ReceiverOptions{Secrets: []string{secret}}, header("Webhook-Id", "id2"), "{}", secret, now, 401},
		{"no id", ReceiverOptions{Secrets: []string{secret}}, header("Webhook-Id", ""), "{}", secret, now, 401},
		{"too many signatures", ReceiverOptions{Secrets: []string{secret}}, func(h http.Header) {
			h.Set("Webhook-Signature", strings.Repeat("v1,AAAA ", 16)+strings.TrimPrefix(h.Get("Webhook-Signature"), "v1,AAAA "))
		}, "{}", secret, now, 401},
		{"another fence", ReceiverOptions{Secrets: []string{secret}}, header("Carillon-Fence", "18446744073709551615"), "{}", secret, now, 401},
		{"another timer", ReceiverOptions{Secrets: []string{secret}}, header("Carillon-Timer", "{k}b"), "{}", secret, now, 401},
		{"another topic", ReceiverOptions{Secrets: []string{secret}}, header("Carillon-Topic", "order"), "{}", secret, now, 401},
		{"another due time", ReceiverOptions{Secrets: []string{secret}}, header("Carillon-Due", "1"), "{}", secret, now, 401},
		{"another attempt", ReceiverOptions{Secrets: []string{secret}}, header("Carillon-Attempt", "1"), "{}", secret, now, 401},
		{"a receipt", ReceiverOptions{Secrets: []string{secret}}, header("Carillon-Receipt", "r"), "{}", secret, now, 401},
		{"values that are not signed", ReceiverOptions{Secrets: []string{secret}}, header("Carillon-Signature", ""), "{}", secret, now, 401},
		{"values and signature of another call", ReceiverOptions{Secrets: []string{secret}}, func(h http.Header) {
			key, _ := parseSecret(secret)
			theirs := h.Clone()
			theirs.Set("Webhook-Id", "id2")
			theirs.Set("Carillon-Fence", "9")
			h.Set("Carillon-Fence", "9")
			h.Set("Carillon-Signature", sign(key, signedValues(theirs)))
		}, "{}", secret, now, 401},
		{"large", ReceiverOptions{Secrets: []string{secret}, MaxBody: 3}, nil, "1234", secret, now, 413},
		{"no callback", ReceiverOptions{Secrets: []string{secret}}, func(h http.Header) {
			key, _ := parseSecret(secret)
			h.Set("Carillon-Fence", "x")
			h.Set("Carillon-Signature", sign(key, signedValues(h)))
		}, "{}", secret, now, 400},
		{"unsigned", ReceiverOptions{Unsigned: true}, nil, "", "", now, 202},
	} {
		got = nil
		w := post(open(tt.o), tt.edit, tt.body, tt.signer, tt.stamp)
		if w.Code != tt.want || (w.Code == 202) != (len(got) == 1) {
			t.Errorf("%s: %d %s, want %d", tt.name, w.Code, w.Body, tt.want)
		}
		if strings.Contains(w.Body.String(), "AAAA") || strings.Contains(w.Body.String(), "whsec") {
			t.Errorf("%s: the answer shows: %s", tt.name, w.Body)
		}
		if len(got) == 1 {
			d := got[0]
			if d.Topic != "orders" || d.Timer != "{k}a" || d.ID != "id1" || d.Attempt != 2 || d.Fence != 7 || d.Due.UnixMilli() != 1893456000250 {
				t.Errorf("%s: %+v", tt.name, d)
			}
		}
	}
	for _, o := range []ReceiverOptions{{}, {Secrets: []string{secret}, Unsigned: true}, {Secrets: []string{"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}, {Secrets: []string{"whsec_AAAA"}}} {
		if _, err := NewReceiver(o); err == nil || strings.Contains(err.Error(), "MfKQ9") {
			t.Errorf("%v: %v", o.Secrets, err)
		}
	}
}

// The error of a function reaches the cluster as a status.
func TestHandleAnswers(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
		after  string
	}{
		{nil, 204, ""},
		{errors.New("no stock"), 500, ""},
		{RetryAfter(90*time.Second, errors.New("busy")), 503, "90"},
		{fmt.Errorf("order 7: %w", RetryAfter(1500*time.Millisecond, errors.New("busy"))), 503, "2"},
		{RetryAfter(0, errors.New("busy")), 503, "1"},
		{Stop(errors.New("no such order")), 410, ""},
		{errors.Join(errors.New("two"), fmt.Errorf("order 7: %w", Stop(errors.New("gone")))), 410, ""},
	} {
		r, err := NewReceiver(ReceiverOptions{Secrets: []string{secret}, Now: func() time.Time { return time.Unix(1_893_456_000, 0) }})
		must(t, err)
		handler := r.Handle(func(context.Context, *Delivery) error { return tt.err })
		w := post(handler, nil, "{}", secret, time.Unix(1_893_456_000, 0))
		if w.Code != tt.status || w.Header().Get("Retry-After") != tt.after {
			t.Errorf("%v: %d, Retry-After %q; want %d, %q", tt.err, w.Code, w.Header().Get("Retry-After"), tt.status, tt.after)
		}
	}
}

func TestReceiverFences(t *testing.T) {
	r, _ := NewReceiver(ReceiverOptions{Unsigned: true})
	calls := 0
	h := r.Handle(func(context.Context, *Delivery) error {
		if calls++; calls == 1 {
			return errors.New("try again")
		}
		return nil
	})
	for _, c := range []struct{ fence, want int }{{7, 500}, {9, 204}, {8, 409}, {9, 409}, {10, 204}} {
		w := post(h, func(h http.Header) { h.Set("Carillon-Fence", strconv.Itoa(c.fence)) }, "", "", time.Now())
		if w.Code != c.want {
			t.Errorf("fence %d: %d, want %d", c.fence, w.Code, c.want)
		}
	}
	broken, _ := NewReceiver(ReceiverOptions{Unsigned: true, Fences: brokenFences{}})
	if w := post(broken.Handle(nil), nil, "", "", time.Now()); w.Code != 500 {
		t.Errorf("without a fence's answer: %d", w.Code)
	}
}

type brokenFences struct{}

func (brokenFences) Admit(context.Context, string, string, uint64) (bool, error) {
	return false, errors.New("gone")
}

// TestFences: the bound holds, the ones that were called last are kept, and of racing calls of one
// fence one gets through.
func TestFences(t *testing.T) {
	f := NewFences(3)
	admit := func(timer string, fence uint64) bool {
		ok, err := f.Admit(t.Context(), "o", timer, fence)
		return ok && err == nil
	}
	for i := range 5 {
		if i == 3 && !admit("t0", 2) {
			t.Error("t0")
		}
		if !admit(fmt.Sprint("t", i), 1) && i != 0 {
			t.Error(i)
		}
	}
	if len(f.places) != 3 || f.order.Len() != 3 || admit("t0", 2) || admit("t4", 1) || !admit("t1", 1) {
		t.Errorf("%v", f.places)
	}
	f = NewFences(0)
	var wg sync.WaitGroup
	var mu sync.Mutex
	through := 0
	for range 8 {
		wg.Go(func() {
			for fence := uint64(1); fence <= 100; fence++ {
				if ok, _ := f.Admit(context.Background(), "o", "a", fence); ok {
					mu.Lock()
					through++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if through != 100 {
		t.Errorf("%d of 100 fences were admitted", through)
	}
}
