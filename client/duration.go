package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"
)

// wireDuration is the form in which a time.Duration travels: a text, "30m". The API's precision is
// a millisecond, and the API rounds up a finer duration.
type wireDuration time.Duration

func (d wireDuration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

func (d *wireDuration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("a duration is a text: %w", err)
	}
	v, err := time.ParseDuration(text)
	*d = wireDuration(v)
	return err
}

// The structs that have durations, which travel as text.

func (c Callback) MarshalJSON() ([]byte, error)    { return encodeDurations(c) }
func (c *Callback) UnmarshalJSON(b []byte) error   { return decodeDurations(b, c) }
func (r Retry) MarshalJSON() ([]byte, error)       { return encodeDurations(r) }
func (r *Retry) UnmarshalJSON(b []byte) error      { return decodeDurations(b, r) }
func (r Repeat) MarshalJSON() ([]byte, error)      { return encodeDurations(r) }
func (r *Repeat) UnmarshalJSON(b []byte) error     { return decodeDurations(b, r) }
func (b Breaker) MarshalJSON() ([]byte, error)     { return encodeDurations(b) }
func (b *Breaker) UnmarshalJSON(text []byte) error { return decodeDurations(text, b) }
func (b Batch) MarshalJSON() ([]byte, error)       { return encodeDurations(b) }
func (b *Batch) UnmarshalJSON(text []byte) error   { return decodeDurations(text, b) }
func (p Policy) MarshalJSON() ([]byte, error)      { return encodeDurations(p) }
func (p *Policy) UnmarshalJSON(b []byte) error     { return decodeDurations(b, p) }

// encodeDurations renders a struct whose durations travel as text.
func encodeDurations(v any) ([]byte, error) {
	from := reflect.ValueOf(v)
	wire := reflect.New(wireType(from.Type())).Elem()
	convertFields(wire, from)
	return encode(wire.Interface())
}

// decodeDurations reads a struct whose durations travel as text. v points to the struct.
func decodeDurations(b []byte, v any) error {
	to := reflect.ValueOf(v).Elem()
	wire := reflect.New(wireType(to.Type()))
	err := json.Unmarshal(b, wire.Interface())
	convertFields(to, wire.Elem())
	return err
}

// wireTypes are the results of wireType: a type is slow to make.
var wireTypes sync.Map

// wireType is a struct with the fields and tags of t, without its methods, and with a wireDuration
// in the place of each time.Duration.
func wireType(t reflect.Type) reflect.Type {
	if made, ok := wireTypes.Load(t); ok {
		return made.(reflect.Type)
	}
	fields := reflect.VisibleFields(t)
	for i := range fields {
		switch fields[i].Type {
		case reflect.TypeFor[time.Duration]():
			fields[i].Type = reflect.TypeFor[wireDuration]()
		case reflect.TypeFor[*time.Duration]():
			fields[i].Type = reflect.TypeFor[*wireDuration]()
		}
	}
	made := reflect.StructOf(fields)
	wireTypes.Store(t, made)
	return made
}

// convertFields copies one struct to another whose fields are convertible, one by one.
func convertFields(to, from reflect.Value) {
	for i := range from.NumField() {
		to.Field(i).Set(from.Field(i).Convert(to.Field(i).Type()))
	}
}

func (t *Timer) UnmarshalJSON(b []byte) error {
	type plain Timer
	var wire struct {
		plain
		ExpiresAfter *wireDuration   `json:"expires_after"`
		OnDone       json.RawMessage `json:"on_done"`
		OnDead       json.RawMessage `json:"on_dead"`
	}
	err := json.Unmarshal(b, &wire)
	*t = Timer(wire.plain)
	t.ExpiresAfter = (*time.Duration)(wire.ExpiresAfter)
	var done, dead error
	t.OnDone, done = outcomeTopicOf(wire.OnDone)
	t.OnDead, dead = outcomeTopicOf(wire.OnDead)
	return errors.Join(err, done, dead)
}

// UnmarshalJSON implements json.Unmarshaler: the Timer's would be taken for it.
func (l *Lease) UnmarshalJSON(b []byte) error {
	var wire struct {
		Receipt    string    `json:"receipt"`
		Fence      uint64    `json:"fence"`
		Attempt    int       `json:"attempt"`
		LeaseUntil time.Time `json:"lease_until"`
	}
	err := errors.Join(json.Unmarshal(b, &wire), json.Unmarshal(b, &l.Timer))
	l.Receipt, l.Fence, l.Attempt, l.LeaseUntil = wire.Receipt, wire.Fence, wire.Attempt, wire.LeaseUntil
	return err
}
