package main

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"

	"carillon/transport/callback/signing"
)

func TestTokenPrintsItselfAndItsHash(t *testing.T) {
	got := carillon(t, "", nil, "token", "--name", "shop", "--scopes", "add,topics", "--topics", "orders,orders.*", "--max-topics", "7")
	token, line, ok := strings.Cut(got.out, "\n")
	if got.code != exitOK || !ok || !regexp.MustCompile(`^crl_[A-Za-z0-9_-]{43}$`).MatchString(token) {
		t.Fatalf("got %+v", got)
	}
	sum := sha256.Sum256([]byte(token))
	if !strings.HasPrefix(line, "- {name: ") || !strings.Contains(line, "shop") || !strings.Contains(line, hex.EncodeToString(sum[:])) {
		t.Errorf("line %q lacks the name or the token's hash", line)
	}
	for _, part := range []string{`scopes: [add, topics]`, `topics: ["orders", "orders.*"]`, "max_topics: 7"} {
		if !strings.Contains(line, part) {
			t.Errorf("line %q lacks %s", line, part)
		}
	}
	if strings.Contains(line, token) {
		t.Error("the line holds the token itself")
	}
	if again := carillon(t, "", nil, "token", "--scopes", "read"); !strings.Contains(again.out, `topics: ["*"]`) || again.out == got.out {
		t.Error("two tokens are alike")
	}
}

// The maker of a token has to name its scopes.
func TestTokenHasNoScopesByDefault(t *testing.T) {
	for _, args := range []string{"", "--scopes root", "--scopes add --topics /", "--scopes add --max-topics 9999999", "--scopes add --max-topics -1", "--scopes cluster --topics orders.*"} {
		got := carillon(t, "", nil, append([]string{"token", "--name", "shop"}, strings.Fields(args)...)...)
		if got.code != exitUsage || got.out != "" {
			t.Errorf("%q: %+v", args, got)
		}
	}
	if got := carillon(t, "", nil, "token", "--scopes", "read,cluster", "--topics", "orders.*"); !strings.Contains(got.err, `the scope cluster is of every topic; it needs topics: ["*"]`) {
		t.Errorf("%+v", got)
	}
	if got := carillon(t, "", nil, "token", "--scopes", "read,cluster"); got.code != exitOK || !strings.Contains(got.out, `scopes: [read, cluster], topics: ["*"]`) {
		t.Errorf("%+v", got)
	}
	if got := carillon(t, "", nil, "token"); !strings.Contains(got.err, "add, cancel, read, topics, admin, cluster") {
		t.Errorf("%+v", got)
	}
}

// A webhook secret is one that a topic's policy takes, and another each time.
func TestTokenMakesWebhookSecrets(t *testing.T) {
	t.Parallel()
	got := carillon(t, "", nil, "token", "--webhook")
	made := strings.TrimSuffix(got.out, "\n")
	if _, err := signing.ParseSecret(made); err != nil || got.code != exitOK || !strings.HasPrefix(made, "whsec_") {
		t.Errorf("%+v: %v", got, err)
	}
	if again := carillon(t, "", nil, "token", "--webhook"); again.out == got.out {
		t.Error("two secrets are alike")
	}
	private, public, _ := strings.Cut(strings.TrimSuffix(carillon(t, "", nil, "token", "--webhook", "--ed25519").out, "\n"), "\n")
	if key, err := signing.ParseKey(private); err != nil || signing.PublicKeyOf(key) != public || !strings.HasPrefix(public, "whpk_") {
		t.Errorf("%q, %q: %v", private, public, err)
	}
	if alone := carillon(t, "", nil, "token", "--ed25519"); alone.code != exitUsage || alone.out != "" {
		t.Errorf("%+v", alone)
	}
	if both := carillon(t, "", nil, "token", "--webhook", "--scopes", "add"); both.code != exitUsage || both.out != "" {
		t.Errorf("%+v", both)
	}
}
