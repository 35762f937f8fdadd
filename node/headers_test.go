package node

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carillon/timer"
	"carillon/transport/callback/address"
)

// headersCase is a node with a topic whose URL is at one origin, and a receiver at another one.
type headersCase struct {
	*running
	t           *testing.T
	home, other *receiver
	seen        map[*receiver]int
}

func newHeadersCase(t *testing.T) *headersCase {
	t.Helper()
	c := &headersCase{running: start(t, t.TempDir()), t: t, home: newReceiver(t, nil), other: newReceiver(t, nil), seen: map[*receiver]int{}}
	c.topic("orders", c.home.URL+"/a", `"Authorization":"topic's","X-Plain":"topic's"`)
	return c
}

func (c *headersCase) topic(name, url, headers string) {
	c.t.Helper()
	body := fmt.Sprintf(`{"merge":"debounce","retry":{"max_attempts":1},"callback":{"url":%q,"headers":{%s}}}`, url, headers)
	if code, got := c.call("PUT", "/v1/topics/"+name, body); code != 201 && code != 200 {
		c.t.Fatalf("%d %s", code, got)
	}
}

// fires makes a timer due and says which of the headers its call brought.
func (c *headersCase) fires(id string, at *receiver, authorization, plain string) {
	c.t.Helper()
	c.must(200, "POST", "/v1/topics/orders/timers/"+id+"/fire", "")
	c.arrives(at, authorization, plain)
}

func (c *headersCase) arrives(at *receiver, authorization, plain string) {
	c.t.Helper()
	c.seen[at]++
	a := at.await(c.t, c.seen[at])[c.seen[at]-1]
	if got := a.header.Get("Authorization"); got != authorization {
		c.t.Errorf("%s: Authorization %q, want %q", a.timer, got, authorization)
	}
	if got := a.header.Get("X-Plain"); got != plain {
		c.t.Errorf("%s: X-Plain %q, want %q", a.timer, got, plain)
	}
}

func (c *headersCase) put(want int, id, body string) {
	c.t.Helper()
	got := c.must(want, "PUT", "/v1/topics/orders/timers/"+id, body)
	if want == 400 && !strings.Contains(got, "bad_header") {
		c.t.Errorf("%s: %s", id, got)
	}
}

func (c *headersCase) patch(want int, id, callback string) {
	c.t.Helper()
	got := c.must(want, "PATCH", "/v1/topics/orders/timers/"+id, `{"callback":{`+callback+`}}`)
	if want == 400 && !strings.Contains(got, "bad_header") {
		c.t.Errorf("%s: %s", id, got)
	}
}

const ownHeaders = `"headers":{"Authorization":"timer's","X-Plain":"timer's"}`
const keptHeaders = `"headers":{"Authorization":"REDACTED","X-Plain":"new"}`

func at(r *receiver, path string) string { return fmt.Sprintf(`"url":%q`, r.URL+path) }

// TestTopicHeadersStayAtTheTopicsOrigin: they go with any URL there, and with none elsewhere.
func TestTopicHeadersStayAtTheTopicsOrigin(t *testing.T) {
	c := newHeadersCase(t)
	c.put(201, "same", `{"delay":"1h"}`)
	c.fires("same", c.home, "topic's", "topic's")
	c.put(201, "path", `{"delay":"1h","callback":{`+at(c.home, "/b?c")+`}}`)
	c.fires("path", c.home, "topic's", "topic's")
	c.put(201, "other", `{"delay":"1h","callback":{`+at(c.other, "")+`}}`)
	c.fires("other", c.other, "", "")
	c.must(201, "POST", "/v1/topics/orders/timers", `{"id":"merged","delay":"1h"}`)
	c.must(200, "POST", "/v1/topics/orders/timers", `{"id":"merged","delay":"1h","callback":{`+at(c.other, "")+`}}`)
	c.fires("merged", c.other, "", "")
	c.must(200, "POST", "/v1/topics/orders/batch", `{"ops":[{"op":"add","id":"batch","delay":"0s","callback":{`+at(c.other, "")+`}}]}`)
	c.arrives(c.other, "", "")
}

// TestTimersHeadersStayAtTheirOrigin: a change of the origin drops those that look secret, unless
// it gives them anew.
func TestTimersHeadersStayAtTheirOrigin(t *testing.T) {
	c := newHeadersCase(t)
	own := `{"delay":"1h","callback":{` + at(c.home, "/own") + `,` + ownHeaders + `}}`
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		c.put(201, id, own)
	}
	c.patch(200, "a", at(c.home, "/elsewhere"))
	c.fires("a", c.home, "timer's", "timer's")
	c.patch(200, "b", at(c.other, "/own"))
	if shown := c.must(200, "GET", "/v1/topics/orders/timers/b", ""); strings.Contains(shown, "Authorization") {
		t.Errorf("it is still there: %s", shown)
	}
	c.fires("b", c.other, "", "timer's")
	c.patch(200, "c", at(c.other, "/own"))
	c.patch(200, "c", at(c.home, "/own")) // nothing comes back with the URL
	c.fires("c", c.home, "", "timer's")
	c.patch(200, "d", at(c.other, "")+`,"headers":{"Authorization":"given anew"}`)
	c.fires("d", c.other, "given anew", "")
	c.put(400, "e", `{"delay":"1h","callback":{`+at(c.other, "")+`,`+keptHeaders+`}}`)
	c.patch(400, "e", at(c.other, "")+`,`+keptHeaders)
	c.must(200, "POST", "/v1/topics/orders/batch", `{"ops":[{"op":"patch","id":"e","callback":{`+at(c.other, "")+`,`+keptHeaders+`}}]}`)
	c.fires("e", c.home, "timer's", "timer's") // nothing was changed
	c.put(200, "f", `{"delay":"1h","callback":{`+at(c.home, "/new")+`,`+keptHeaders+`}}`)
	c.fires("f", c.home, "timer's", "new")
	c.put(200, "g", `{"delay":"1h","callback":{`+at(c.other, "")+`}}`)
	c.fires("g", c.other, "", "")
	c.must(200, "POST", "/v1/topics/orders/batch", `{"ops":[{"op":"patch","id":"h","callback":{`+at(c.other, "")+`}},{"op":"fire","id":"h"}]}`)
	c.arrives(c.other, "", "timer's")
}

// TestTimersHeadersBesideTheTopicsURL: they are for the origin that the topic's URL had when they
// were given.
func TestTimersHeadersBesideTheTopicsURL(t *testing.T) {
	c := newHeadersCase(t)
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		c.put(201, id, `{"delay":"1h","callback":{`+ownHeaders+`}}`)
	}
	c.fires("a", c.home, "timer's", "timer's")
	c.patch(200, "b", at(c.home, "/x"))
	c.fires("b", c.home, "timer's", "timer's")
	c.patch(200, "c", at(c.other, "/x"))
	c.fires("c", c.other, "", "timer's")
	c.patch(200, "d", at(c.home, "/x"))
	c.topic("orders", c.other.URL, `"X-Plain":"topic's"`)
	c.patch(200, "d", `"url":null`)
	c.fires("d", c.other, "", "timer's")
	c.fires("e", c.other, "", "timer's")
	c.patch(400, "f", keptHeaders)
	c.patch(200, "f", `"headers":{"Authorization":"given anew"}`)
	c.fires("f", c.other, "given anew", "")
	c.topic("orders", c.home.URL, `"X-Plain":"topic's"`)
	c.patch(200, "g", keptHeaders)
	c.fires("g", c.home, "timer's", "new")
}

// TestRedriveSendsNoHeadersElsewhere: a dead letter's own, or its topic's.
func TestRedriveSendsNoHeadersElsewhere(t *testing.T) {
	c := newHeadersCase(t)
	down := newReceiver(t, func(_ *receivedFile, w http.ResponseWriter) { w.WriteHeader(500) })
	c.topic("orders", down.URL, `"Authorization":"topic's","X-Plain":"topic's"`)
	c.put(201, "own", `{"delay":"0s","callback":{`+ownHeaders+`}}`)
	c.put(201, "topics", `{"delay":"0s"}`)
	c.eventually("orders", "own", "dead")
	c.eventually("orders", "topics", "dead")
	c.must(200, "POST", "/v1/topics/orders/dead/redrive", `{"ids":["own"],"callback":{`+at(c.other, "")+`}}`)
	c.arrives(c.other, "", "timer's")
	c.must(200, "POST", "/v1/topics/orders/dead/redrive", `{"all":true,"callback":{`+at(c.other, "")+`}}`)
	c.arrives(c.other, "", "")
}

// TestTopicKeepsHeadersAtItsOriginOnly: a header that comes back as REDACTED keeps its value for
// the origin that it was given for.
func TestTopicKeepsHeadersAtItsOriginOnly(t *testing.T) {
	c := newHeadersCase(t)
	to := func(url string) string {
		return fmt.Sprintf(`{"callback":{%s,"url":%q}}`, keptHeaders, url)
	}
	if got := c.must(400, "PUT", "/v1/topics/orders", to(c.other.URL)); !strings.Contains(got, "bad_header") {
		t.Error(got)
	}
	c.must(200, "PUT", "/v1/topics/orders", to(c.home.URL+"/other/path"))
	c.put(201, "a", `{"delay":"1h"}`)
	c.fires("a", c.home, "topic's", "new")
}

// The changes that TestSecretsNeverLeaveTheirOrigin draws.
const (
	opTopic = iota
	opRedrive
	opFire
	opAdd
	opPut
	opPatch
)

// TestSecretsNeverLeaveTheirOrigin draws requests of every kind that can change a URL or headers,
// over three origins, and names in the value of each secret header the origin that it is given for.
// No call may bring another one.
func TestSecretsNeverLeaveTheirOrigin(t *testing.T) {
	if testing.Short() {
		t.Skip("long: make ci runs it")
	}
	const steps, timers = 600, 6
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var arrived, brought atomic.Int32
	var origins []*receiver
	for range 3 {
		var r *receiver
		ready := make(chan struct{})
		r = newReceiver(t, func(a *receivedFile, w http.ResponseWriter) {
			<-ready
			arrived.Add(1)
			if got := a.header.Get("X-Api-Key"); got != "" {
				if brought.Add(1); got != "for "+r.URL {
					t.Errorf("timer %s came to %s with the secret %q", a.timer, r.URL, got)
				}
			}
			w.WriteHeader([]int{200, 500}[a.fence%2])
		})
		close(ready)
		origins = append(origins, r)
	}
	n := start(t, t.TempDir())
	anyOrigin := func() string { return origins[random.IntN(len(origins))].URL }
	policy := func(url, secret string) string {
		return fmt.Sprintf(`{"merge":"debounce","retry":{"max_attempts":1},"breaker":{"failures":10000},"callback":{"url":"%s/t","headers":{"X-Api-Key":%q}}}`, url, secret)
	}
	topic := anyOrigin()
	n.must(201, "PUT", "/v1/topics/x", policy(topic, "for "+topic))
	for range steps {
		id := fmt.Sprint("t", random.IntN(timers))
		path := "/v1/topics/x/timers/" + id
		own, version := "", 0 // of the timer as it is
		if code, body := n.call("GET", path, ""); code == 200 {
			var shown struct {
				Version  int
				Callback struct{ URL string }
			}
			if err := json.Unmarshal([]byte(body), &shown); err != nil {
				t.Fatal(err)
			}
			own, version = shown.Callback.URL, shown.Version
		}
		op := random.IntN(opPatch + 1)
		patch := op == opPatch
		goes, callback := topic, []string{} // where the call would go, and the answer about it
		if choice := random.IntN(3); choice == 0 || op == opRedrive {
			goes = anyOrigin()
			callback = append(callback, fmt.Sprintf(`"url":"%s/%d"`, goes, random.IntN(3)))
		} else if patch && choice == 1 {
			callback = append(callback, `"url":null`)
		} else if patch && own != "" {
			goes = own[:strings.LastIndexByte(own, '/')]
		}
		switch random.IntN(4) {
		case 0:
			callback = append(callback, fmt.Sprintf(`"headers":{"X-Api-Key":"for %s"}`, goes))
		case 1:
			callback = append(callback, `"headers":{"X-Api-Key":"REDACTED"}`)
		}
		fields := fmt.Sprintf(`"callback":{%s}`, strings.Join(callback, ","))
		timed := fmt.Sprintf(`"delay":"%dms",%s`, random.IntN(50), fields)
		switch op {
		case opTopic:
			if to := anyOrigin(); random.IntN(2) == 0 {
				topic = to
				n.must(200, "PUT", "/v1/topics/x", policy(topic, "for "+topic))
			} else if code, _ := n.call("PUT", "/v1/topics/x", policy(to, "REDACTED")); code == 200 {
				topic = to
			}
		case opRedrive:
			n.call("POST", "/v1/topics/x/dead/redrive", `{"all":true,`+fields+`}`)
		case opFire:
			n.call("POST", path+"/fire", "")
		case opAdd:
			n.call("POST", "/v1/topics/x/timers", fmt.Sprintf(`{"id":%q,%s}`, id, timed))
		case opPut:
			n.call("PUT", path, `{`+timed+`}`)
		default: // of the version that was seen: its URL is known
			n.call("POST", "/v1/topics/x/batch", fmt.Sprintf(`{"ops":[{"op":"patch","id":%q,"if_match":%d,%s}]}`, id, max(version, 1), timed))
		}
	}
	n.call("POST", "/v1/topics/x/reschedule", `{"all":true,"at_ms":1000000000000}`)
	for id := range timers {
		n.call("POST", fmt.Sprintf("/v1/topics/x/timers/t%d/fire", id), "")
	}
	if arrived.Load() < steps/20 || brought.Load() < steps/60 {
		t.Errorf("%d calls came, %d with a secret: too few to say anything", arrived.Load(), brought.Load())
	}
}

// TestOneOriginIsOneDestination: one origin for headers is one receiver to call.
func TestOneOriginIsOneDestination(t *testing.T) {
	var urls []string
	for _, scheme := range []string{"http", "https", "HTTP"} {
		for _, host := range []string{"a", "A", "a.", "a.b", "[::1]", "[0:0::1]", "127.0.0.1"} {
			for _, port := range []string{"", ":80", ":443", ":8080"} {
				for _, rest := range []string{"", "/", "?a:1", "/http://a", "/x:8080"} {
					urls = append(urls, scheme+"://"+host+port+rest)
				}
			}
		}
	}
	same := 0
	for _, a := range urls {
		for _, b := range urls {
			if !timer.SameOrigin(a, b) {
				continue
			}
			same++
			keyA, errA := address.ParseKey(a)
			keyB, errB := address.ParseKey(b)
			if errA != nil || errB != nil || keyA != keyB {
				t.Fatalf("%s and %s: %v %v, %v %v", a, b, keyA, errA, keyB, errB)
			}
		}
	}
	if same <= len(urls) {
		t.Errorf("%d pairs of %d URLs", same, len(urls))
	}
}
