package sink

import (
	"fmt"
	"math"
	"net/http"

	"carillon/client"
)

// signatureToleranceSeconds is how far webhook-timestamp may be from our
// clock: the five minutes of the Standard Webhooks reference libraries.
const signatureToleranceSeconds = 300

// verifier checks both signatures of a call against any of its secrets: that of
// Standard Webhooks over the body, and Carillon's over the headers that name the
// call it is. It is safe for concurrent use.
type verifier struct{ receiver *client.Receiver }

// newVerifier parses secrets of the form whsec_<base64>.
func newVerifier(secrets []string) (*verifier, error) {
	// The time is checked here, by when the call arrived.
	r, err := client.NewReceiver(client.ReceiverOptions{Secrets: secrets, Tolerance: math.MaxInt64})
	if err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	return &verifier{r}, nil
}

// problem names the fault of the delivery's signature, "" if there is none.
func (v *verifier) problem(d *Delivery) string {
	if len(d.Signature) == 0 {
		return "no signature"
	}
	signed := Decimal(d.Timestamp)
	if len(d.WebhookID) == 0 || signed < 0 {
		return "no webhook-id or webhook-timestamp"
	}
	if off := signed - d.ArrivedUs/1e6; off > signatureToleranceSeconds || off < -signatureToleranceSeconds {
		return "webhook-timestamp is more than 5 minutes off"
	}
	h := http.Header{}
	for name, value := range d.header.All() {
		h.Set(string(name), string(value))
	}
	if v.receiver.Verify(h, d.Body) != nil {
		return "the signature of the body, or that of the headers, does not match"
	}
	return ""
}
