package encoding

import (
	"reflect"
	"testing"

	"carillon/timer"
)

var (
	secretAndPlain = []timer.Header{{Name: "X-Plain", Value: "p"}, {Name: "X-Api-Key", Value: "s"}}
	plainOnly      = []timer.Header{{Name: "X-Plain", Value: "p"}}
)

// TestPatchDropsHeadersOfAnotherOrigin: the result depends on the timer's callback, the patch, and
// the topic's URL at that moment.
func TestPatchDropsHeadersOfAnotherOrigin(t *testing.T) {
	const here, there = "http://here", "http://there"
	f := func(had timer.Callback, p timer.Patch, topic string, want timer.Callback) {
		t.Helper()
		p.BindTo(topic)
		had.HasHeaders, want.HasHeaders = true, true
		sent, err := DecodePatch(AppendPatch(nil, &p))
		if err != nil {
			t.Fatal(err)
		}
		got := had
		sent.ApplyToCallback(&got)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v and %+v under %s:\n%+v, want\n%+v", had, p, topic, got, want)
		}
		var again timer.Callback
		if again, err = DecodeCallback(AppendCallback(nil, &got)); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%+v was read back as %+v: %v", got, again, err)
		}
	}
	url := func(to string) (p timer.Patch) {
		p.URL, p.Spec.Callback.URL = true, to
		return p
	}
	headers := func(p timer.Patch, h []timer.Header) timer.Patch {
		p.Headers, p.Spec.Callback.Headers, p.Spec.Callback.HasHeaders = true, h, true
		return p
	}
	bound := timer.Callback{Headers: secretAndPlain, Origin: here}
	f(timer.Callback{URL: here, Headers: secretAndPlain}, url(here+"/x"), there, timer.Callback{URL: here + "/x", Headers: secretAndPlain})
	f(timer.Callback{URL: here, Headers: secretAndPlain}, url(there), here, timer.Callback{URL: there, Headers: plainOnly})
	f(timer.Callback{URL: here, Headers: secretAndPlain}, url(""), here+"/t", bound)
	f(timer.Callback{URL: here, Headers: secretAndPlain}, url(""), there, timer.Callback{Headers: plainOnly})
	f(timer.Callback{URL: here, Headers: secretAndPlain}, url(""), "", timer.Callback{Headers: plainOnly})
	f(bound, url(here), there, timer.Callback{URL: here, Headers: secretAndPlain})
	f(bound, url(there), there, timer.Callback{URL: there, Headers: plainOnly})
	f(bound, headers(timer.Patch{}, secretAndPlain), there, timer.Callback{Headers: secretAndPlain, Origin: there})
	f(bound, headers(timer.Patch{}, plainOnly), there, timer.Callback{Headers: plainOnly})
	f(bound, headers(url(there), secretAndPlain), here, timer.Callback{URL: there, Headers: secretAndPlain})
	f(timer.Callback{URL: here, Headers: secretAndPlain}, headers(timer.Patch{}, secretAndPlain), there, timer.Callback{URL: here, Headers: secretAndPlain})
	f(bound, timer.Patch{Timeout: true, Spec: timer.Spec{Callback: timer.Callback{TimeoutMs: 5}}}, there, timer.Callback{Headers: secretAndPlain, Origin: here, TimeoutMs: 5})
}
