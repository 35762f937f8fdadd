package spec

import (
	"carillon/timer"
	"carillon/transport/api/web"
)

// ReadOutcome reads {"topic": T}, or null, which is none. Whether T takes outcomes is not checked.
func ReadOutcome(r *web.Reader, name string) (topic string) {
	if r.Null() {
		return ""
	}
	given := r.Object(name, []string{"topic"}, func(int) { topic = r.Text(name + ".topic") })
	if r.Err() == nil && (given == 0 || !web.ValidTopic(topic)) {
		r.Reject(r.OutOfRange(name + `: give {"topic": "name of a topic"}, or null for none`))
	}
	return topic
}

// AppendOutcome writes a timer's own setting for its outcome.
func AppendOutcome(b []byte, name string, o *timer.OutcomeTopic) []byte {
	if o == nil {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	if o.ID == 0 {
		return append(b, "null"...)
	}
	return append(append(append(b, `{"topic":"`...), o.Name...), `"}`...)
}
