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
func (x *roundTripper) addEvent(req *Request) {
	x.addOwn(req, "ce-specversion", eventVersion)
	x.addOwn(req, "ce-id", req.WebhookID)
	x.addOwn(req, "ce-source", eventSource+req.Topic)
	x.addOwn(req, "ce-type", eventType)
	x.addOwn(req, "ce-subject", req.Timer)
	x.addOwn(req, "ce-time", time.UnixMilli(req.DueMs).UTC().Format(eventTime))
}

// addOwn adds a header unless the callback has one of that name.
func (x *roundTripper) addOwn(req *Request, name, value string) {
	if !has(req.Headers, name) {
		x.add(name, value)
	}
}

func has(headers []Header, name string) bool {
	return slices.ContainsFunc(headers, func(h Header) bool { return strings.EqualFold(h.Name, name) })
}
