package client

import "encoding/json"

// OutcomeTopic names the topic in which the end of a timer makes another timer, its outcome: due at
// once, with the label "outcome" and an OutcomePayload. The zero value is none, even where the
// policy of the timer's topic has one.
type OutcomeTopic struct {
	Topic string `json:"topic"`
}

func (o OutcomeTopic) MarshalJSON() ([]byte, error) {
	if o.Topic == "" {
		return []byte("null"), nil
	}
	type plain OutcomeTopic
	return json.Marshal(plain(o))
}

// outcomeTopicOf reads a member of a timer that may be null: nil where it is absent.
func outcomeTopicOf(member json.RawMessage) (*OutcomeTopic, error) {
	if len(member) == 0 {
		return nil, nil
	}
	out := new(OutcomeTopic)
	return out, json.Unmarshal(member, out)
}

// OutcomePayload is the payload of an outcome.
type OutcomePayload struct {
	Outcome State  `json:"outcome"` // Done or Dead
	Reason  Reason `json:"reason"`  // of Dead
	Timer   Timer  `json:"timer"`   // as it ended, with its attempts
	// PayloadLeftOut: the timer's payload would have made the outcome's too large.
	PayloadLeftOut bool `json:"payload_left_out"`
}
