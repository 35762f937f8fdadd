package api

import (
	"testing"

	"carillon/transport/api/web"
)

// TestAddsToATopicOfBatches: a call of many timers has a body, so none of them may be by a method
// without one.
func TestAddsToATopicOfBatches(t *testing.T) {
	h := newHarness(t)
	h.do("PUT", orders, `{"callback":{"url":"http://a.example/"},"batch":{"max":10}}`).want(201)
	h.do("POST", timersPath, `{"id":"a","delay":"1h"}`).want(201)
	h.do("POST", timersPath, `{"id":"b","delay":"1h","callback":{"method":"PUT","headers":{"X":"1"}}}`).want(201)
	for _, method := range []string{"GET", "DELETE"} {
		h.do("POST", timersPath, `{"delay":"1h","callback":{"method":"`+method+`"}}`).problem(422, web.BadPolicy)
		h.do("PUT", timersPath+"/a", `{"delay":"1h","callback":{"method":"`+method+`"}}`).problem(422, web.BadPolicy)
		h.do("PATCH", timersPath+"/a", `{"callback":{"method":"`+method+`"}}`).problem(422, web.BadPolicy)
	}
	h.do("PATCH", timersPath+"/b", `{"callback":{"method":null}}`).want(200)
	h.do("PATCH", orders, `{"callback":{"method":"GET"}}`).problem(422, web.BadPolicy)
	h.do("PATCH", orders, `{"serial":true}`).problem(422, web.BadPolicy)
	h.do("PATCH", orders, `{"batch":null,"callback":{"method":"GET"}}`).want(200)
	h.do("POST", timersPath, `{"delay":"1h"}`).want(201)
}
