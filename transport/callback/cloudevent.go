package callback

import (
	"slices"
	"strings"
	"time"
)

// The attributes of CloudEvents 1.0 that are the same for every call.
const (
	eventVersion = "1.0"
	eventType    = "carillon.timer.due"
	eventSource  = "/v1/topics/" // and the topic's name
	eventTime    = "2006-01-02T15:04:05.000Z"
)

// addEvent makes a call a CloudEvent in binary mode: its attributes are headers, its data is the
// body with its own content type. A ce- header of the callback's own stands in place of ours.
//
// The id is the webhook-id. All attempts are of one event, so they have one id: source and id are
// all that a consumer of CloudEvents has to drop a repeat by. No value needs percent-encoding: the
// names of topics and timers have none of the characters that do.
func (rt *roundTripper) addEvent(req *Request) {
	rt.addOwn(req, "ce-specversion", eventVersion)
	rt.addOwn(req, "ce-id", req.WebhookID)
	rt.addOwn(req, "ce-source", eventSource+req.Topic)
	rt.addOwn(req, "ce-type", eventType)
	rt.addOwn(req, "ce-subject", req.Timer)
	rt.addOwn(req, "ce-time", time.UnixMilli(req.DueMs).UTC().Format(eventTime))
}

// addOwn adds a header unless the callback has one of that name.
func (rt *roundTripper) addOwn(req *Request, name, value string) {
	if !has(req.Headers, name) {
		rt.add(name, value)
	}
}

func has(headers []Header, name string) bool {
	return slices.ContainsFunc(headers, func(h Header) bool { return strings.EqualFold(h.Name, name) })
}
