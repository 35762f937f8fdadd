package main

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"carillon/transport/callback/signing"
)

func TestTopicsRotate(t *testing.T) {
	t.Parallel()
	const answer = `{"topic":"orders","secrets":["sha256:new","sha256:old"]}`
	keys := []reply{{status: 200, body: `{"topic":"orders","signing_keys":["whpk_new","whpk_old"]}`}}
	ok := []reply{{status: 200, body: answer}}
	runCtl(t, []ctlCase{
		{
			name: "rotate to a given secret", args: []string{"topics", "rotate", "orders", "--secret", "-"}, stdin: "whsec_given\n", replies: ok,
			asked: []string{`POST /v1/topics/orders/secrets/rotate {"secret":"whsec_given"}`}, out: []string{"sha256:new\nsha256:old\n"}, err: []string{"2 secrets sign now", "rotate orders --finish"},
		},
		{
			name: "rotate and finish later", args: []string{"topics", "rotate", "orders", "--secret", "whsec_given", "--keep", "50ms"}, replies: append(ok, reply{status: 200, body: `{"topic":"orders","secrets":["sha256:new"]}`}),
			asked: []string{`POST /v1/topics/orders/secrets/rotate {"secret":"whsec_given"}`, `POST /v1/topics/orders/secrets/finish {"keep":"sha256:new"}`},
			out:   []string{"sha256:new\nsha256:old\nsha256:new\n"}, err: []string{"the new one alone in 50ms"},
		},
		{
			name: "the first secret", args: []string{"topics", "rotate", "orders", "--secret", "x", "--keep", "1h"}, replies: []reply{{status: 200, body: `{"topic":"orders","secrets":["sha256:new"]}`}},
			asked: []string{`POST /v1/topics/orders/secrets/rotate {"secret":"x"}`}, out: []string{"sha256:new\n"}, err: []string{"calls are signed from now on"},
		},
		{
			name: "finish", args: []string{"topics", "rotate", "orders", "--finish"}, replies: ok, asked: []string{`POST /v1/topics/orders/secrets/finish {}`}, out: []string{"sha256:new"},
		},
		{
			name: "take it back", args: []string{"topics", "rotate", "orders", "--finish", "--only", "sha256:old", "--json"}, replies: ok,
			asked: []string{`POST /v1/topics/orders/secrets/finish {"keep":"sha256:old"}`}, out: []string{answer + "\n"},
		},
		{
			name: "a key that the node makes", args: []string{"topics", "rotate", "orders", "--ed25519"}, replies: keys,
			asked: []string{`POST /v1/topics/orders/signing-keys/rotate {}`}, out: []string{"whpk_new\nwhpk_old\n"}, err: []string{"2 keys sign now", "rotate orders --ed25519 --finish"},
		},
		{
			name: "a key that is given", args: []string{"topics", "rotate", "orders", "--secret", "whsk_given", "--keep", "50ms", "--json"}, replies: append(keys, keys...),
			asked: []string{`POST /v1/topics/orders/signing-keys/rotate {"signing_key":"whsk_given"}`, `POST /v1/topics/orders/signing-keys/finish {"keep":"whpk_new"}`},
			out:   []string{`{"topic":"orders","signing_keys":["whpk_new","whpk_old"]}` + "\n"}, err: []string{"the new one alone in 50ms"},
		},
		{
			name: "finish with keys", args: []string{"topics", "rotate", "orders", "--ed25519", "--finish"}, replies: keys, asked: []string{`POST /v1/topics/orders/signing-keys/finish {}`}, out: []string{"whpk_new"},
		},
		{
			name: "take a key back", args: []string{"topics", "rotate", "orders", "--finish", "--only", "whpk_old"}, replies: keys,
			asked: []string{`POST /v1/topics/orders/signing-keys/finish {"keep":"whpk_old"}`}, out: []string{"whpk_new"},
		},
		{name: "rotate what is not there", args: []string{"topics", "rotate", "orders", "--secret", "x"}, replies: []reply{{status: 404, body: `{"code":"unknown_topic","detail":"there is no such topic"}`}},
			asked: []string{`POST /v1/topics/orders/secrets/rotate {"secret":"x"}`}, err: []string{"there is no such topic"}, code: exitFailure},
		{name: "finish with a secret", args: []string{"topics", "rotate", "orders", "--finish", "--secret", "x"}, err: []string{"--finish"}, code: exitUsage},
		{name: "only without finish", args: []string{"topics", "rotate", "orders", "--only", "x"}, err: []string{"goes with --finish"}, code: exitUsage},
	})
	// Without a secret it makes one, which is printed and sent.
	node := &fakeNode{replies: append(ok, ok...)}
	server := httptest.NewServer(node)
	defer server.Close()
	got := carillon(t, "", nil, "ctl", "topics", "rotate", "orders", "--url", server.URL)
	made, _, _ := strings.Cut(got.out, "\n")
	if _, err := signing.ParseSecret(made); err != nil || node.requests()[0] != `POST /v1/topics/orders/secrets/rotate {"secret":"`+made+`"}` {
		t.Errorf("%+v, %v, %v", got, err, node.requests())
	}
	var shown struct{ Secret string }
	got = carillon(t, "", nil, "ctl", "topics", "rotate", "orders", "--json", "--url", server.URL)
	if err := json.Unmarshal([]byte(got.out), &shown); err != nil || node.requests()[1] != `POST /v1/topics/orders/secrets/rotate {"secret":"`+shown.Secret+`"}` {
		t.Errorf("%+v, %v", got, node.requests())
	}
}
