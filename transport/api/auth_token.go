package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// The parts of a token.
const (
	tokenPrefix = "crl_"
	tokenRandom = 32 // bytes, 43 characters of base64url
)

// TokenRule is a token's line of the auth file.
type TokenRule struct {
	Name      string
	Scopes    []string
	Topics    []string // patterns, * for any characters; at least one
	MaxTopics int      // 0: the default
}

// NewToken makes a token and its line for the auth file, which holds only the token's hash.
func NewToken(rule TokenRule) (token, line string, err error) {
	var raw [tokenRandom]byte
	_, _ = rand.Read(raw[:]) // never fails
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(raw[:])
	topics := make([]string, len(rule.Topics))
	for i, t := range rule.Topics {
		topics[i] = strconv.Quote(t)
	}
	more := ""
	if rule.MaxTopics != 0 {
		more = fmt.Sprintf(", max_topics: %d", rule.MaxTopics)
	}
	line = fmt.Sprintf(`- {name: %q, sha256: "%x", scopes: [%s], topics: [%s]%s}`, rule.Name, sha256.Sum256([]byte(token)),
		strings.Join(rule.Scopes, ", "), strings.Join(topics, ", "), more)
	if _, err := parseAuth([]byte(line)); err != nil { // a token that would be refused is not made
		return "", "", errors.New(strings.ReplaceAll(err.Error(), "line 1: ", ""))
	}
	return token, line, nil
}
