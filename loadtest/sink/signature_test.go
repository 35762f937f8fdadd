package sink

import (
	"strings"
	"testing"

	"github.com/valyala/fasthttp"

	"carillon/test/testkit"
)

// The vector of the Standard Webhooks reference libraries.
const vectorSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func vector() *Delivery {
	d := &Delivery{
		WebhookID: []byte("msg_p5jXN8AQM9LWM0D4loKWxJek"),
		Timestamp: []byte("1614265330"),
		Signature: []byte("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
		Body:      []byte(`{"test": 2432232314}`),
		ArrivedUs: 1614265330 * 1e6,
		header:    new(fasthttp.RequestHeader),
	}
	for name, value := range map[string]string{
		"Webhook-Id": string(d.WebhookID), "Webhook-Timestamp": string(d.Timestamp), "Carillon-Topic": "orders", "Carillon-Timer": "{o-77}close",
		"Carillon-Due": "1614265330000", "Carillon-Attempt": "2", "Carillon-Fence": "7",
		"Carillon-Signature": "v1,x v1,gUfpyP4Ajg1OYhURY2R8wSPredmP9gSByJdTfvLph9Q=",
	} {
		d.header.Set(name, value)
	}
	return d
}

func TestSignatureVector(t *testing.T) {
	const good = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	const noMatch = "the signature of the body, or that of the headers, does not match"
	const other = "v1,AAAA9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	for _, c := range []struct {
		name   string
		change func(*Delivery)
		want   string
	}{
		{"as published", func(*Delivery) {}, ""},
		{"second of two", func(d *Delivery) { d.Signature = []byte(other + " " + good) }, ""},
		{"beside another version", func(d *Delivery) { d.Signature = []byte("v1a,xyz " + good) }, ""},
		{"other signature", func(d *Delivery) { d.Signature = []byte(other) }, noMatch},
		{"cut short", func(d *Delivery) { d.Signature = d.Signature[:20] }, noMatch},
		{"none", func(d *Delivery) { d.Signature = nil }, "no signature"},
		{"no id", func(d *Delivery) { d.WebhookID = nil }, "no webhook-id or webhook-timestamp"},
		{"other body", func(d *Delivery) { d.Body = []byte(`{}`) }, noMatch},
		{"odd timestamp", func(d *Delivery) { d.Timestamp = []byte("yesterday") }, "no webhook-id or webhook-timestamp"},
		{"six minutes old", func(d *Delivery) { d.ArrivedUs += 360 * 1e6 }, "webhook-timestamp is more than 5 minutes off"},
		{"another fence", func(d *Delivery) { d.header.Set("Carillon-Fence", "8") }, noMatch},
		{"another timer", func(d *Delivery) { d.header.Set("Carillon-Timer", "{o-77}open") }, noMatch},
		{"a receipt", func(d *Delivery) { d.header.Set("Carillon-Receipt", "r") }, noMatch},
		{"values not signed", func(d *Delivery) { d.header.Del("Carillon-Signature") }, noMatch},
		{"good one is the 17th", func(d *Delivery) { d.Signature = []byte(strings.Repeat("x ", 16) + good) }, noMatch},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := newVerifier([]string{"whsec_" + strings.Repeat("Q", 32), vectorSecret})
			testkit.Must(t, err)
			d := vector()
			c.change(d)
			d.header.SetBytesV("Webhook-Signature", d.Signature)
			if got := v.problem(d); got != c.want {
				t.Errorf("problem = %q, want %q", got, c.want)
			}
		})
	}
}

func TestVerifierRefusesBadSecrets(t *testing.T) {
	for _, secret := range []string{"", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_!!!", "whsec_" + strings.Repeat("Q", 128)} {
		if _, err := newVerifier([]string{secret}); err == nil {
			t.Errorf("secret %q was taken", secret)
		} else if len(secret) > 10 && strings.Contains(err.Error(), secret) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

func BenchmarkVerifier(b *testing.B) {
	v, err := newVerifier([]string{vectorSecret})
	testkit.Must(b, err)
	d := vector()
	d.header.SetBytesV("Webhook-Signature", d.Signature)
	b.ReportAllocs()
	for b.Loop() {
		if problem := v.problem(d); problem != "" {
			b.Fatal(problem)
		}
	}
}
