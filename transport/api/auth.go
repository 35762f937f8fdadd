package api

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	yaml "go.yaml.in/yaml/v3"
)

// scope is a set of what a token may do.
type scope uint8

const (
	scopeAdd scope = 1 << iota
	scopeCancel
	scopeRead
	scopeAdmin
	scopeMetrics // admin, or read of every topic: the series name topics

	scopeOpen   scope = 0
	scopeChange       = scopeAdd | scopeCancel // either; the handler looks closer
)

var scopeNames = map[string]scope{"add": scopeAdd, "cancel": scopeCancel, "read": scopeRead, "admin": scopeAdmin}

// Bounds of the auth file.
const (
	maxAuthBytes  = 4 << 20
	maxTokens     = 10_000
	tokenPrefix   = "crl_"
	tokenRandom   = 32                                     // bytes
	tokenBytes    = len(tokenPrefix) + (tokenRandom*8+5)/6 // 43 characters of base64url
	bearerPrefix  = "bearer "
	maxAuthHeader = 256
)

// principal is who a token stands for.
type principal struct {
	name   string
	sum    [sha256.Size]byte // of the token
	scopes scope
	topics []string // patterns
	// prefixes are what the patterns begin with; see nextSeen.
	prefixes []string
	quota    *quota // of adds; nil: none
}

// Auth holds the tokens of an auth file. Safe for use by any goroutine.
type Auth struct {
	path       string
	principals atomic.Pointer[[]principal]
}

// LoadAuth reads an auth file: a YAML list of {name, sha256, scopes, topics}, and perhaps quota: {per_second, burst}.
func LoadAuth(path string) (*Auth, error) {
	a := &Auth{path: path}
	return a, a.Reload()
}

// Reload reads the file again. When that fails the tokens stay as they were.
func (a *Auth) Reload() error {
	data, err := os.ReadFile(a.path)
	if err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	list, err := parseAuth(data)
	if err != nil {
		return fmt.Errorf("auth: %s: %w", a.path, err)
	}
	if before := a.principals.Load(); before != nil {
		keepQuotas(list, *before)
	}
	a.principals.Store(&list)
	return nil
}

func parseAuth(data []byte) ([]principal, error) {
	if len(data) > maxAuthBytes {
		return nil, fmt.Errorf("over %d bytes", maxAuthBytes)
	}
	var entries []struct {
		Name   string   `yaml:"name"`
		SHA256 string   `yaml:"sha256"`
		Scopes []string `yaml:"scopes"`
		Topics []string `yaml:"topics"`
		Quota  *quotaRule
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&entries); err != nil {
		return nil, err
	}
	if len(entries) == 0 || len(entries) > maxTokens {
		return nil, fmt.Errorf("must list 1 to %d tokens", maxTokens)
	}
	list := make([]principal, len(entries))
	var errs []error
	for i, e := range entries {
		p := &list[i]
		p.name, p.topics, p.prefixes = e.Name, e.Topics, patternPrefixes(e.Topics)
		if e.Name == "" {
			errs = append(errs, fmt.Errorf("entry %d: has no name", i+1))
		}
		sum, err := hex.DecodeString(e.SHA256)
		if err != nil || len(sum) != sha256.Size {
			errs = append(errs, fmt.Errorf("entry %d: sha256 must be 64 hex digits", i+1))
		}
		copy(p.sum[:], sum)
		for _, s := range e.Scopes {
			if scopeNames[s] == 0 {
				errs = append(errs, fmt.Errorf("entry %d: no scope %q (add, cancel, read, admin)", i+1, s))
			}
			p.scopes |= scopeNames[s]
		}
		if p.scopes == 0 {
			errs = append(errs, fmt.Errorf("entry %d: has no scopes", i+1))
		}
		if len(e.Topics) == 0 {
			errs = append(errs, fmt.Errorf(`entry %d: has no topics ("*" is all)`, i+1))
		}
		if e.Quota != nil {
			if fault := e.Quota.fault(); fault != "" {
				errs = append(errs, fmt.Errorf("entry %d: %s", i+1, fault))
			}
			p.quota = &quota{rule: *e.Quota}
		}
		for _, t := range e.Topics {
			if t == "" || !only(strings.ReplaceAll(t, "*", ""), topicRest) {
				errs = append(errs, fmt.Errorf("entry %d: topic pattern %q", i+1, t))
			}
		}
	}
	return list, errors.Join(errs...)
}

// find is who the token stands for, nil when nobody. Every entry is compared, each in constant time.
func (a *Auth) find(token []byte) *principal {
	sum := sha256.Sum256(token)
	var found *principal
	list := *a.principals.Load()
	for i := range list {
		if subtle.ConstantTimeCompare(sum[:], list[i].sum[:]) == 1 {
			found = &list[i]
		}
	}
	return found
}

// sees reports whether the topic is the principal's; always, when the API is open.
func (p *principal) sees(topic string) bool {
	if p == nil {
		return true
	}
	for _, pattern := range p.topics {
		if match(pattern, topic) {
			return true
		}
	}
	return false
}

// match: a star stands for any run of characters.
func match(pattern, s string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	s = s[len(head):]
	for {
		part, next, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], next
	}
}

// authenticate finds out who asks. Without a valid token nothing but the open routes can be told from nothing at all.
func (rq *request) authenticate(pat *pattern) *problem {
	auth := rq.s.cfg.Auth
	if auth == nil || pat != nil && pat.routes[0].scope == scopeOpen {
		return nil
	}
	h := rq.ctx.Request.Header.PeekAll("Authorization")
	if len(h) == 1 && len(h[0]) > len(bearerPrefix) && len(h[0]) <= maxAuthHeader &&
		strings.EqualFold(string(h[0][:len(bearerPrefix)]), bearerPrefix) {
		rq.who = auth.find(h[0][len(bearerPrefix):])
	}
	if rq.who == nil {
		return fail(401, "unauthorized", "a valid token is needed: Authorization: Bearer <token>")
	}
	return nil
}

// authorise holds the route against the token: a topic that is not the token's is not there at all.
func (rq *request) authorise() *problem {
	if rq.who == nil {
		return nil
	}
	if rq.topic != "" && !rq.who.sees(rq.topic) {
		return noTopic()
	}
	may := rq.who.may(rq.route.scope)
	if rq.route.scope == scopeMetrics {
		may = rq.who.may(scopeAdmin) || rq.who.may(scopeRead) && rq.who.sees("\x00") // only "*" matches every name
	}
	if !may && rq.route.scope != scopeOpen {
		return fail(403, "forbidden", "the token's scopes do not allow this")
	}
	return nil
}

// may reports whether any of the scopes is held; always, when the API is open.
func (p *principal) may(s scope) bool { return p == nil || p.scopes&s != 0 }

// NewToken makes a token and its line for the auth file, which holds only the token's hash.
func NewToken(name string) (token, line string) {
	var raw [tokenRandom]byte
	_, _ = rand.Read(raw[:]) // never fails
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(raw[:])
	sum := sha256.Sum256([]byte(token))
	return token, fmt.Sprintf(`- {name: %q, sha256: "%x", scopes: [add, cancel, read, admin], topics: ["*"]}`, name, sum)
}
