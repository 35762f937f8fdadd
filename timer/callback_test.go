package timer

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

func TestHeadersUnderATopic(t *testing.T) {
	secretAndPlain := []Header{{"X-Plain", "p"}, {"X-Api-Key", "s"}}
	plainOnly := []Header{{"X-Plain", "p"}}
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
	f(own, topic, "http://a/x", plainOnly) // their origin is not known
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
