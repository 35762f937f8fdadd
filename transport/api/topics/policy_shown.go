package topics

import (
	"encoding/json"
	"errors"
	"fmt"

	"carillon/timer"
	"carillon/transport/api/internal/strictjson"
	"carillon/transport/api/web"
)

// PolicyAsShown reads a policy as a PUT of a topic does, and returns it as a GET shows it then:
// with every default, and each value in its one spelling. So a client can check a policy, and
// compare it with a topic's. had is the policy that a GET shows now, nil without a topic: as in a
// PUT, values that it shows as REDACTED, fingerprints or public keys may come back so.
func PolicyAsShown(policy, had []byte) ([]byte, error) {
	var stored *timer.Policy
	if had != nil {
		var err error
		if stored, err = standIn(had); err != nil {
			return nil, err
		}
	}
	r := &web.Reader{Scanner: strictjson.Of(policy)}
	p := readPolicy(r, stored)
	if p := r.Problem(); p != nil {
		return nil, errors.New(p.Detail)
	}
	return AppendPolicy(nil, p), nil
}

// standIn makes a stored policy of one that is shown, for what a new one can refer to.
func standIn(shown []byte) (*timer.Policy, error) {
	var had struct {
		Callback struct {
			URL     string
			Headers map[string]string
		}
		Secrets []string
		Keys    []string `json:"signing_keys"`
	}
	if err := json.Unmarshal(shown, &had); err != nil {
		return nil, fmt.Errorf("the topic's policy: %w", err)
	}
	p := timer.DefaultPolicy()
	p.Callback.URL, p.Secrets = had.Callback.URL, had.Secrets
	for name, value := range had.Callback.Headers {
		p.Callback.Headers = append(p.Callback.Headers, timer.Header{Name: name, Value: value})
	}
	for _, key := range had.Keys {
		p.SigningKeys = append(p.SigningKeys, timer.SigningKey{Public: key})
	}
	return &p, nil
}
