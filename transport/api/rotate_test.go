package api

import (
	"fmt"
	"strings"
	"testing"

	"carillon/internal/secret"
	"carillon/timer"
	"carillon/transport/api/web"
	"carillon/transport/callback/signing"
)

// A secret is added before the others and the others are dropped later; the rest of the policy
// stays.
func TestSecretsAreRotated(t *testing.T) {
	h := newHarness(t)
	first, second, third, fourth := signing.NewSecret(), signing.NewSecret(), signing.NewSecret(), signing.NewSecret()
	h.do("PUT", orders, `{"callback":{"url":"http://a.example/","headers":{"Authorization":"hunter2"}},"history":"24h","secrets":["`+first+`"]}`).want(201)
	rotate, finish := orders+"/secrets/rotate", orders+"/secrets/finish"
	are := func(r *reply, secrets ...string) {
		t.Helper()
		var prints []string
		for _, s := range secrets {
			prints = append(prints, fmt.Sprintf("%q", secret.Fingerprint(s)))
		}
		if want := `{"topic":"orders","secrets":[` + strings.Join(prints, ",") + `]}`; r.want(200).body != want {
			t.Errorf("%s, want %s", r.body, want)
		}
		topic, _ := topicsOf(h.engine).Here("orders")
		if got := topic.Policy; len(got.Secrets) != len(secrets) || got.Secrets[0] != secrets[0] || got.HistoryMs != 86_400_000 || got.Callback.Headers[0].Value != "hunter2" {
			t.Errorf("%+v", got)
		}
	}
	are(h.do("POST", rotate, `{"secret":"`+second+`"}`), second, first)
	// Again: nothing has changed.
	are(h.do("POST", rotate, `{"secret":"`+second+`"}`), second, first)
	wrote := h.engine.wrote
	h.do("POST", rotate, `{"secret":"`+second+`"}`).want(200)
	if h.engine.wrote != wrote {
		t.Error("it was written again")
	}
	are(h.do("POST", rotate, `{"secret":"`+third+`"}`), third, second, first)
	h.do("POST", rotate, `{"secret":"`+fourth+`"}`).problem(422, web.BadPolicy)
	h.do("POST", rotate, "").problem(422, web.BadPolicy)
	// One that it has comes first.
	are(h.do("POST", rotate, `{"secret":"`+first+`"}`), first, third, second)
	are(h.do("POST", finish, `{"keep":"`+secret.Fingerprint(third)+`"}`), third)
	are(h.do("POST", rotate, `{"secret":"`+fourth+`"}`), fourth, third)
	are(h.do("POST", finish, ""), fourth)
	are(h.do("POST", finish, "{}"), fourth)

	made := h.do("POST", rotate, "{}").want(200)
	topic, _ := topicsOf(h.engine).Here("orders")
	if _, err := signing.ParseSecret(topic.Policy.Secrets[0]); err != nil || !strings.Contains(made.body, `"secret":"`+topic.Policy.Secrets[0]+`"`) || len(topic.Policy.Secrets) != 2 {
		t.Errorf("%s: %v, %v", made.body, topic.Policy.Secrets, err)
	}
}

func TestSecretsAreRotatedWithCare(t *testing.T) {
	h := newHarness(t)
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	rotate, finish := orders+"/secrets/rotate", orders+"/secrets/finish"
	h.do("POST", rotate, "").problem(404, web.UnknownTopic)
	h.do("POST", finish, "").problem(404, web.UnknownTopic)
	h.do("PUT", orders, `{}`).want(201)
	h.do("POST", finish, "").problem(422, web.BadPolicy)
	for body, want := range map[string]string{
		`{"secret":"hunter2"}`: web.BadPolicy, `{"secret":"whsec_AAAA"}`: web.BadPolicy, `{"secret":""}`: web.BadRequest, `{"secret":7}`: web.BadRequest, `{"secrets":["a"]}`: web.UnknownField, `[]`: web.BadRequest, `{`: web.BadJSON,
	} {
		status := 400
		if want == web.BadPolicy {
			status = 422
		}
		if r := h.do("POST", rotate, body); strings.Contains(r.body, "hunter2") {
			t.Errorf("%s: %s", body, r.body)
		} else {
			r.problem(status, want)
		}
	}
	h.do("POST", rotate, `{"secret":"`+secret+`"}`).want(200)
	h.do("POST", finish, `{"keep":"sha256:0000000000000000"}`).problem(422, web.BadPolicy)
	// A fingerprint, not the secret.
	h.do("POST", finish, `{"keep":"`+secret+`"}`).problem(422, web.BadPolicy)
	h.do("GET", rotate, "").problem(405, "method_not_allowed")
	h.engine.err = timer.ErrNoLeader
	h.do("POST", rotate, "").problem(503, "no_leader")
}

const (
	privateKey = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	publicOfIt = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
)

// Signing keys are rotated as secrets are, and beside them. Of a private key nothing is ever shown.
func TestSigningKeysAreRotated(t *testing.T) {
	h := newHarness(t)
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	rotate, finish := orders+"/signing-keys/rotate", orders+"/signing-keys/finish"
	h.do("POST", rotate, "").problem(404, web.UnknownTopic)
	h.do("PUT", orders, `{"secrets":["`+secret+`"],"history":"24h"}`).want(201)
	h.do("POST", finish, "").problem(422, web.BadPolicy)
	shown := ""
	are := func(r *reply, keys ...string) {
		t.Helper()
		if want := `{"topic":"orders","signing_keys":["` + strings.Join(keys, `","`) + `"]}`; r.want(200).body != want {
			t.Errorf("%s, want %s", r.body, want)
		}
		shown += r.body + h.do("GET", orders, "").want(200).body
		topic, _ := topicsOf(h.engine).Here("orders")
		if got := topic.Policy; len(got.SigningKeys) != len(keys) || len(got.Secrets) != 1 || got.HistoryMs != 86_400_000 {
			t.Errorf("%+v", got)
		}
	}
	are(h.do("POST", rotate, `{"signing_key":"`+privateKey+`"}`), publicOfIt)
	wrote := h.engine.wrote
	are(h.do("POST", rotate, `{"signing_key":"`+privateKey+`"}`), publicOfIt)
	if h.engine.wrote != wrote {
		t.Error("it was written again")
	}
	h.do("POST", rotate, "").want(200) // the node makes one
	topic, _ := topicsOf(h.engine).Here("orders")
	made := topic.Policy.SigningKeys[0]
	if key, err := signing.ParseKey(made.Private); err != nil || signing.PublicKeyOf(key) != made.Public || made.Public == publicOfIt {
		t.Errorf("%+v: %v", made, err)
	}
	are(h.do("POST", rotate, `{"signing_key":"`+made.Private+`"}`), made.Public, publicOfIt)
	h.do("POST", rotate, "{}").want(200)
	h.do("POST", rotate, "{}").problem(422, web.BadPolicy) // three are all that there may be
	are(h.do("POST", finish, `{"keep":"`+publicOfIt+`"}`), publicOfIt)
	h.do("POST", finish, `{"keep":"`+made.Public+`"}`).problem(422, web.BadPolicy)
	h.do("POST", finish, `{"keep":"`+privateKey+`"}`).problem(422, web.BadPolicy)
	are(h.do("POST", finish, ""), publicOfIt)
	for body, want := range map[string]string{
		`{"signing_key":"hunter2"}`: web.BadPolicy, `{"signing_key":"` + publicOfIt + `"}`: web.BadPolicy, `{"signing_key":"` + secret + `"}`: web.BadPolicy,
		`{"signing_key":""}`: web.BadRequest, `{"secret":"a"}`: web.UnknownField,
	} {
		status := 400
		if want == web.BadPolicy {
			status = 422
		}
		h.do("POST", rotate, body).problem(status, want)
	}
	if strings.Contains(shown, "whsk_") || strings.Contains(shown, made.Private[5:]) {
		t.Errorf("a private key is shown: %s", shown)
	}
}
