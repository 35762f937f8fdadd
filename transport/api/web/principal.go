package web

import (
	"crypto/sha256"
	"slices"
	"strings"

	"carillon/transport/api/backend"
)

// Scope is the set of actions that a token may take. That of a route is the set of scopes of which
// a token needs one. The zero value allows nothing: a route without a scope is refused to every
// token.
type Scope uint8

const (
	ScopeAdd Scope = 1 << iota
	ScopeCancel
	ScopeRead
	ScopeAdmin   // policies, pauses and dead letters of the token's topics
	ScopeTopics  // adds may make topics
	ScopeCluster // nodes, replicas, backups, and what spans all topics; only with the topics ["*"]
	ScopeOpen    // of routes alone: no token is asked for

	ScopeChange  = ScopeAdd | ScopeCancel   // the handler looks closer
	ScopeMetrics = ScopeRead | ScopeCluster // the same
)

// Principal is the client that a token stands for.
type Principal struct {
	Name   string
	Sum    [sha256.Size]byte // of the token
	Scopes Scope
	Topics []string // patterns
	All    bool     // one of them is of every topic
	// prefixes are the beginnings of the patterns; see nextSeen.
	Prefixes []string
	Quotas   [quotaKinds]*Quota // nil: none
	Making   topicsMade         // of adds that make topics
}

// Sees reports whether the topic is the principal's; always, when the API is open.
func (p *Principal) Sees(topic string) bool {
	if p == nil {
		return true
	}
	return slices.ContainsFunc(p.Topics, func(pattern string) bool { return backend.Match(pattern, topic) })
}

// Token stands for the principal's token; zero, when the API is open.
func (p *Principal) Token() (sum [sha256.Size]byte) {
	if p != nil {
		sum = p.Sum
	}
	return sum
}

// SeesAll reports whether every topic is the principal's.
func (p *Principal) SeesAll() bool { return p == nil || p.All }

// Needs refuses a token that has none of these scopes, by their names.
func (p *Principal) Needs(s Scope) *Problem {
	if p.May(s) {
		return nil
	}
	return Failf(403, Forbidden, "this needs the scope %s; the token has %s", strings.Join(s.Names(), " or "), strings.Join(p.Scopes.Names(), ", "))
}

// Recheck refuses a request that has lasted, if the same request would be refused by now: the auth
// file, or the authorities of clients, may have been read again since it began.
func (rq *Request) Recheck() *Problem {
	if c := rq.Conn(); c != nil && !c.Trusted() {
		return Fail(401, Unauthorized, "the authority of the client's certificate is no longer trusted")
	}
	if rq.Who == nil {
		return nil
	}
	who := rq.Principal(rq.Who.Sum)
	if who == nil {
		return Fail(401, Unauthorized, "the token has been revoked or has expired")
	}
	if !who.Sees(rq.Topic) {
		return who.NotReached(rq.Topic)
	}
	return who.Needs(rq.Scope)
}

// NotReached is the answer about a topic that is not the token's. It reveals nothing of the topic.
func (p *Principal) NotReached(topic string) *Problem {
	most := min(len(p.Topics), 5)
	reaches := strings.Join(p.Topics[:most], ", ")
	if most < len(p.Topics) {
		reaches += ", …"
	}
	return Failf(404, UnknownTopic, "there is no topic %s that this token reaches (its topics: %s)", topic, reaches)
}

// May reports whether any of the scopes is held; always, when the API is open.
func (p *Principal) May(s Scope) bool { return p == nil || p.Scopes&s != 0 }

// Scopes are all that a token may be allowed, in the order in which they are shown.
var Scopes = []string{"add", "cancel", "read", "topics", "admin", "cluster"}

var ScopeNames = map[string]Scope{
	"add": ScopeAdd, "cancel": ScopeCancel, "read": ScopeRead, "topics": ScopeTopics, "admin": ScopeAdmin, "cluster": ScopeCluster,
}

// Names are those of the scopes in a set.
func (s Scope) Names() (list []string) {
	for _, name := range Scopes {
		if s&ScopeNames[name] != 0 {
			list = append(list, name)
		}
	}
	return list
}

// justBefore is behind every name that comes before those that begin so, and before these.
func justBefore(prefix string) string {
	if prefix == "" {
		return ""
	}
	n := len(prefix) - 1
	return prefix[:n] + string(prefix[n]-1) + "\x7f"
}

// nextSeen skips names that the token cannot see, by the beginnings of its patterns: it
// returns a name behind which to look on. false: there are none.
func (p *Principal) nextSeen(after string) (string, bool) {
	if p == nil {
		return after, true
	}
	next, found := "", false
	for _, prefix := range p.Prefixes {
		switch {
		case prefix == "" || after >= justBefore(prefix) && (after < prefix || strings.HasPrefix(after, prefix)):
			return after, true
		case after < prefix && (!found || prefix < next):
			next, found = prefix, true
		}
	}
	if !found {
		return "", false
	}
	return justBefore(next), true
}

// PatternPrefixes are the beginnings of the names that the patterns match.
func PatternPrefixes(patterns []string) (prefixes []string) {
	for _, pattern := range patterns {
		prefix, _, _ := strings.Cut(pattern, "*")
		if !slices.Contains(prefixes, prefix) {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}
