package client

import (
	"encoding/json"
	"fmt"
	"time"
)

// Duration is a time.Duration that travels as text: "30m". The API's precision is a millisecond;
// what is finer is rounded up.
type Duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("a duration is a text: %w", err)
	}
	v, err := time.ParseDuration(text)
	*d = Duration(v)
	return err
}

func (d Duration) String() string { return time.Duration(d).String() }
