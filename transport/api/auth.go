package api

import (
	"crypto/sha256"
	"strings"
)

// scope is the set of actions that a token may take. That of a route is the set of scopes of which
// a token needs one. The zero value allows nothing: a route without a scope is refused to every
// token.
type scope uint8

const (
	scopeAdd scope = 1 << iota
	scopeCancel
	scopeRead
	scopeAdmin   // policies, pauses and dead letters of the token's topics
	scopeTopics  // adds may make topics
	scopeCluster // nodes, replicas, backups, and what spans all topics; only with the topics ["*"]
	scopeOpen    // of routes alone: no token is asked for

	scopeChange  = scopeAdd | scopeCancel   // the handler looks closer
	scopeMetrics = scopeRead | scopeCluster // the same
)

const (
	bearerPrefix  = "bearer "
	maxAuthHeader = 256
)

// principal is the client that a token stands for.
type principal struct {
	name   string
	sum    [sha256.Size]byte // of the token
	scopes scope
	topics []string // patterns
	all    bool     // one of them is of every topic
	// prefixes are the beginnings of the patterns; see nextSeen.
	prefixes []string
	quotas   [quotaKinds]*quota // nil: none
	making   topicsMade         // of adds that make topics
}

// principals are those of one reading of the auth file.
type principals struct {
	list  []principal
	bySum map[[sha256.Size]byte]*principal // in list
}

func newPrincipals(list []principal) *principals {
	ps := &principals{list, make(map[[sha256.Size]byte]*principal, len(list))}
	for i := range list {
		ps.bySum[list[i].sum] = &list[i]
	}
	return ps
}

// find is the principal of a token, nil when there is none. The time that it takes may tell
// something of the hashes that are stored, and those tell nothing of their tokens.
func (a *Auth) find(token []byte) *principal { return a.principals.Load().bySum[sha256.Sum256(token)] }

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

// seesAll reports whether every topic is the principal's.
func (p *principal) seesAll() bool { return p == nil || p.all }

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

// authenticate finds the principal of a request. Without a valid token nothing but the open routes
// can be told from nothing at all.
func (rq *request) authenticate(pat *pattern) *problem {
	auth := rq.s.cfg.Auth
	if auth == nil || pat != nil && pat.open {
		return nil
	}
	h := rq.ctx.Request.Header.PeekAll("Authorization")
	if len(h) == 1 && len(h[0]) > len(bearerPrefix) && len(h[0]) <= maxAuthHeader &&
		strings.EqualFold(string(h[0][:len(bearerPrefix)]), bearerPrefix) {
		rq.who = auth.find(h[0][len(bearerPrefix):])
	}
	if rq.who == nil {
		return fail(401, unauthorized, "a valid token is needed: Authorization: Bearer <token>")
	}
	return nil
}

// authorise holds the route against the token: a topic that is not the token's is not there at all.
func (rq *request) authorise() *problem {
	if rq.who == nil {
		return nil
	}
	if rq.topic != "" && !rq.who.sees(rq.topic) {
		return rq.notReached()
	}
	if p := rq.needs(rq.route.scope); p != nil {
		return p
	}
	if rq.route.everyTopic && !rq.who.seesAll() {
		return fail(403, forbidden, `this spans all topics: the token needs the topics ["*"]`)
	}
	return nil
}

// needs refuses a token that has none of these scopes, by their names.
func (rq *request) needs(s scope) *problem {
	if rq.who.may(s) {
		return nil
	}
	return failf(403, forbidden, "this needs the scope %s; the token has %s", strings.Join(s.names(), " or "), strings.Join(rq.who.scopes.names(), ", "))
}

// notReached is the answer about a topic that is not the token's. It says nothing of the topic.
func (rq *request) notReached() *problem {
	most := min(len(rq.who.topics), 5)
	reaches := strings.Join(rq.who.topics[:most], ", ")
	if most < len(rq.who.topics) {
		reaches += ", …"
	}
	return failf(404, unknownTopic, "there is no topic %s that this token reaches (its topics: %s)", rq.topic, reaches)
}

// may reports whether any of the scopes is held; always, when the API is open.
func (p *principal) may(s scope) bool { return p == nil || p.scopes&s != 0 }
