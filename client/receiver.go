package client

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// ReceiverOptions select the callers that a Receiver believes.
type ReceiverOptions struct {
	// Secrets are the topic's, whsec_…; a call is good when one of them signed it. During a
	// rotation give the old and the new.
	Secrets []string
	// PublicKeys are the topic's, whpk_…, which any read of the topic shows; a call is good when
	// one of these or of Secrets fits.
	PublicKeys []string
	// Unsigned takes calls without looking at signatures; then there must be neither of these.
	Unsigned bool
	// Tolerance is how far the signature's time may be from the clock; 0 is 5 minutes.
	Tolerance time.Duration
	// MaxBody bounds a body in bytes; 0 is 1 MiB. Payloads are 256 KiB at most by default.
	MaxBody int64
	// Fences drops calls of leases that are over. nil: NewFences(0).
	Fences FenceStore
	Now    func() time.Time // nil: time.Now
}

// Receiver receives callbacks. It is safe for use by many goroutines.
type Receiver struct {
	options ReceiverOptions
	keys    [][]byte
	public  []ed25519.PublicKey
}

// Delivery is one call.
type Delivery struct {
	Topic string
	Timer string
	// Webhook-id: the same for all attempts of one version of one timer, another for any other.
	ID      string
	Attempt int    // 1, 2, …
	Fence   uint64 // grows with every lease of the timer's id
	Due     time.Time
	Asked   time.Time // when somebody fired the timer by hand, perhaps before Due; not signed
	Receipt string    // report mode: answer 202, and Ack, Nack or Extend with it later
	Body    []byte
	// ContentType is the payload's, "" without one. The signature covers that of a call of many.
	ContentType string
	CloudEvent  *CloudEvent // topics with format cloudevents; else nil
}

// CloudEvent are the attributes of CloudEvents 1.0 in a call's ce- headers, as they came. No
// signature covers them: decisions go by the Delivery, of which they repeat a part.
type CloudEvent struct {
	ID      string // the webhook-id, so the same for all attempts
	Source  string
	Type    string
	Subject string
	Time    time.Time // zero where the header is no time
}

type deliveryKey struct{}

// FromContext is the delivery that a request behind the middleware is about.
func FromContext(ctx context.Context) (*Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(*Delivery)
	return d, ok
}

// NewReceiver makes a receiver.
func NewReceiver(o ReceiverOptions) (*Receiver, error) {
	r := &Receiver{options: o}
	for i, secret := range o.Secrets {
		key, err := parseSecret(secret)
		if err != nil {
			return nil, fmt.Errorf("client: secret %d: %w", i+1, err)
		}
		r.keys = append(r.keys, key)
	}
	for i, text := range o.PublicKeys {
		key, err := parsePublicKey(text)
		if err != nil {
			return nil, fmt.Errorf("client: public key %d: %w", i+1, err)
		}
		r.public = append(r.public, key)
	}
	if o.Unsigned != (len(r.keys)+len(r.public) == 0) {
		return nil, errors.New("client: a receiver needs the topic's secrets or public keys, or Unsigned to do without")
	}
	if r.options.Tolerance <= 0 {
		r.options.Tolerance = 5 * time.Minute
	}
	if r.options.MaxBody <= 0 {
		r.options.MaxBody = 1 << 20
	}
	if r.options.Fences == nil {
		r.options.Fences = NewFences(0)
	}
	if r.options.Now == nil {
		r.options.Now = now
	}
	return r, nil
}

// Middleware lets only good calls through to next, which finds the Delivery by FromContext and the
// body where it always is. It answers 413 to a body that is too large, 401 to a signature that is
// not good, 400 to a request that is no callback, 409 to a call of a lease that is over, and 500
// when the store of fences fails: all of which the cluster counts as a failed attempt.
func (r *Receiver) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, ok := r.body(w, req)
		if !ok {
			return
		}
		d, err := readDelivery(req.Header, body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fresh, err := r.options.Fences.Admit(req.Context(), d.Topic, d.Timer, d.Fence)
		switch {
		case err != nil:
			http.Error(w, "the fence could not be looked up", http.StatusInternalServerError)
		case !fresh:
			http.Error(w, staleText, http.StatusConflict)
		default:
			req = req.WithContext(context.WithValue(req.Context(), deliveryKey{}, d))
			req.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, req)
		}
	})
}

// staleText answers a call whose lease is over.
const staleText = "a later attempt of this timer has been here"

// body reads the body of a call and checks its signatures. ok: nothing is answered yet.
func (r *Receiver) body(w http.ResponseWriter, req *http.Request) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, r.options.MaxBody))
	if err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			http.Error(w, "body too large", http.StatusRequestEntityTooLarge)
			return nil, false
		}
		http.Error(w, "the body did not arrive whole", http.StatusBadRequest)
		return nil, false
	}
	if err := r.Verify(req.Header, body); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return nil, false
	}
	return body, true
}

// Handle is Middleware around a function: nil answers 204, an error 500, so that the attempt is
// repeated after the topic's backoff. RetryAfter sets after how long instead (503 with
// Retry-After), and Stop that it is of no use (410).
func (r *Receiver) Handle(f func(ctx context.Context, d *Delivery) error) http.Handler {
	return r.Middleware(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		d, _ := FromContext(req.Context())
		if err := f(req.Context(), d); err != nil {
			http.Error(w, err.Error(), failureStatus(w.Header(), err))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
}

// failureStatus is the status of an answer to a call that failed so.
func failureStatus(h http.Header, err error) int {
	if _, of := errors.AsType[*stop](err); of {
		return http.StatusGone
	}
	if later, of := errors.AsType[*retryAfter](err); of {
		seconds := (later.delay + time.Second - 1) / time.Second
		h.Set("Retry-After", strconv.FormatInt(int64(max(seconds, 1)), 10))
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func readDelivery(h http.Header, body []byte) (*Delivery, error) {
	d := &Delivery{
		Topic: h.Get("Carillon-Topic"), Timer: h.Get("Carillon-Timer"), ID: h.Get("Webhook-Id"), Receipt: h.Get("Carillon-Receipt"), Body: body,
		ContentType: h.Get("Content-Type"),
	}
	due, err1 := strconv.ParseInt(h.Get("Carillon-Due"), 10, 64)
	attempt, err2 := strconv.Atoi(h.Get("Carillon-Attempt"))
	fence, err3 := strconv.ParseUint(h.Get("Carillon-Fence"), 10, 64)
	if d.Topic == "" || d.Timer == "" || d.ID == "" || err1 != nil || err2 != nil || err3 != nil {
		return nil, errors.New("this is no call of Carillon: its headers are missing")
	}
	d.Due, d.Attempt, d.Fence = time.UnixMilli(due), attempt, fence
	if asked, err := strconv.ParseInt(h.Get("Carillon-Asked"), 10, 64); err == nil {
		d.Asked = time.UnixMilli(asked)
	}
	d.CloudEvent = readCloudEvent(h)
	return d, nil
}

func readCloudEvent(h http.Header) *CloudEvent {
	if h.Get("Ce-Specversion") == "" {
		return nil
	}
	at, _ := time.Parse(time.RFC3339, h.Get("Ce-Time"))
	return &CloudEvent{ID: h.Get("Ce-Id"), Source: h.Get("Ce-Source"), Type: h.Get("Ce-Type"), Subject: h.Get("Ce-Subject"), Time: at}
}
