package main

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
)

func TestTokenPrintsItselfAndItsHash(t *testing.T) {
	got := carillon(t, "", nil, "token", "--name", "shop")
	token, line, ok := strings.Cut(got.out, "\n")
	if got.code != exitOK || !ok || !regexp.MustCompile(`^crl_[A-Za-z0-9_-]{43}$`).MatchString(token) {
		t.Fatalf("got %+v", got)
	}
	sum := sha256.Sum256([]byte(token))
	if !strings.HasPrefix(line, "- {name: ") || !strings.Contains(line, "shop") || !strings.Contains(line, hex.EncodeToString(sum[:])) {
		t.Errorf("line %q lacks the name or the token's hash", line)
	}
	if strings.Contains(line, token) {
		t.Error("the line holds the token itself")
	}
	if again := carillon(t, "", nil, "token"); again.out == got.out {
		t.Error("two tokens are alike")
	}
}
