package shard

import (
	"reflect"
	"testing"
)

func TestSameOrigin(t *testing.T) {
	f := func(want bool, a, b string) {
		t.Helper()
		if SameOrigin(a, b) != want || SameOrigin(b, a) != want {
			t.Errorf("%q and %q: want %v", a, b, want)
		}
	}
	f(true, "http://shop.example", "HTTP://Shop.Example:80/a?b")
	f(true, "https://shop.example:443?x", "https://shop.example/")
	f(true, "http://[fd00::1]:8080/", "http://[fd00::1]:8080")
	f(true, "http://[fd00::1]/", "http://[fd00::1]:80")
	f(false, "http://shop.example", "https://shop.example")
	f(false, "http://shop.example", "http://shop.example:8080")
	f(false, "http://shop.example", "http://shop.example.evil.example")
	f(false, "http://shop.example?.evil.example", "http://shop.example.evil.example")
	f(false, "http://shop.example", "http://shop.example.")
	f(false, "http://[fd00::1]:80", "http://[fd00::2]:80")
	f(false, "http://a/http://b", "http://b")
	f(false, "", "")
	f(false, "", "http://a")
	f(false, "ftp://a", "ftp://a")
}

var (
	secretAndPlain = []Header{{"X-Plain", "p"}, {"X-Api-Key", "s"}}
	plainOnly      = []Header{{"X-Plain", "p"}}
)

func TestHeadersUnderATopic(t *testing.T) {
	f := func(own, topic Callback, url string, headers []Header) {
		t.Helper()
		got := own.Under(&topic)
		if got.URL != url || len(got.Headers) != len(headers) || len(headers) > 0 && !reflect.DeepEqual(got.Headers, headers) {
			t.Errorf("%+v under %+v: %+v", own, topic, got)
		}
	}
	topic := Callback{URL: "http://a/x", Method: "PUT", Headers: secretAndPlain, HasHeaders: true, TimeoutMs: 7}
	f(Callback{}, topic, "http://a/x", secretAndPlain)
	f(Callback{URL: "http://a/y"}, topic, "http://a/y", secretAndPlain)
	f(Callback{URL: "http://b/y"}, topic, "http://b/y", nil)
	f(Callback{HasHeaders: true}, topic, "http://a/x", nil)
	own := Callback{HasHeaders: true, Headers: secretAndPlain}
	f(own, topic, "http://a/x", plainOnly) // it is not known what they were given for
	own.BindTo("http://a/z")
	f(own, topic, "http://a/x", secretAndPlain)
	f(own, Callback{URL: "http://b"}, "http://b", plainOnly)
	f(own, Callback{}, "", plainOnly)
	own.URL, own.Origin = "http://b", ""
	f(own, topic, "http://b", secretAndPlain)
	f(Callback{URL: "http://b"}, Callback{Headers: secretAndPlain}, "http://b", nil) // a topic without a URL has no origin
	if got := (&Callback{Method: "POST", TimeoutMs: 9}).Under(&topic); got.Method != "POST" || got.TimeoutMs != 9 {
		t.Errorf("%+v", got)
	}
}

// TestPatchDropsHeadersOfAnotherOrigin: by what the timer had, what the patch says, and the URL of the topic at that moment.
func TestPatchDropsHeadersOfAnotherOrigin(t *testing.T) {
	const here, there = "http://here", "http://there"
	f := func(had Callback, p Patch, topic string, want Callback) {
		t.Helper()
		p.BindTo(topic)
		had.HasHeaders, want.HasHeaders = true, true
		sent, err := decodePatch(appendPatch(nil, &p))
		if err != nil {
			t.Fatal(err)
		}
		got := had
		sent.ApplyToCallback(&got)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v and %+v under %s:\n%+v, want\n%+v", had, p, topic, got, want)
		}
		var again Callback
		if again, err = decodeCallback(appendCallback(nil, &got)); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%+v was read back as %+v: %v", got, again, err)
		}
	}
	url := func(to string) (p Patch) {
		p.URL, p.Spec.Callback.URL = true, to
		return p
	}
	headers := func(p Patch, h []Header) Patch {
		p.Headers, p.Spec.Callback.Headers, p.Spec.Callback.HasHeaders = true, h, true
		return p
	}
	bound := Callback{Headers: secretAndPlain, Origin: here}
	f(Callback{URL: here, Headers: secretAndPlain}, url(here+"/x"), there, Callback{URL: here + "/x", Headers: secretAndPlain})
	f(Callback{URL: here, Headers: secretAndPlain}, url(there), here, Callback{URL: there, Headers: plainOnly})
	f(Callback{URL: here, Headers: secretAndPlain}, url(""), here+"/t", bound)
	f(Callback{URL: here, Headers: secretAndPlain}, url(""), there, Callback{Headers: plainOnly})
	f(Callback{URL: here, Headers: secretAndPlain}, url(""), "", Callback{Headers: plainOnly})
	f(bound, url(here), there, Callback{URL: here, Headers: secretAndPlain})
	f(bound, url(there), there, Callback{URL: there, Headers: plainOnly})
	f(bound, headers(Patch{}, secretAndPlain), there, Callback{Headers: secretAndPlain, Origin: there})
	f(bound, headers(Patch{}, plainOnly), there, Callback{Headers: plainOnly})
	f(bound, headers(url(there), secretAndPlain), here, Callback{URL: there, Headers: secretAndPlain})
	f(Callback{URL: here, Headers: secretAndPlain}, headers(Patch{}, secretAndPlain), there, Callback{URL: here, Headers: secretAndPlain})
	f(bound, Patch{Timeout: true, Spec: Spec{Callback: Callback{TimeoutMs: 5}}}, there, Callback{Headers: secretAndPlain, Origin: here, TimeoutMs: 5})
}
