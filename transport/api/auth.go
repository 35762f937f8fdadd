package api

import (
	"crypto/sha256"
	"strings"

	"carillon/transport/api/web"
)

const (
	bearerPrefix  = "bearer "
	maxAuthHeader = 256
)

// principals are those of one reading of the auth file.
type principals struct {
	list  []web.Principal
	bySum map[[sha256.Size]byte]*web.Principal // in list
}

func newPrincipals(list []web.Principal) *principals {
	ps := &principals{list, make(map[[sha256.Size]byte]*web.Principal, len(list))}
	for i := range list {
		ps.bySum[list[i].Sum] = &list[i]
	}
	return ps
}

// find is the principal of a token, nil when there is none. The time that it takes may show
// something of the hashes that are stored, and those show nothing of their tokens.
func (a *Auth) find(token []byte) *web.Principal { return a.principal(sha256.Sum256(token)) }

func (a *Auth) principal(sum [sha256.Size]byte) *web.Principal { return a.principals.Load().bySum[sum] }

// authenticate finds the principal of a request. Without a valid token all but the open routes
// looks like nothing at all.
func (rq *request) authenticate(pat *pattern) *web.Problem {
	auth := rq.s.cfg.Auth
	if auth == nil || pat != nil && pat.open {
		return nil
	}
	h := rq.Ctx.Request.Header.PeekAll("Authorization")
	if len(h) == 1 && len(h[0]) > len(bearerPrefix) && len(h[0]) <= maxAuthHeader &&
		strings.EqualFold(string(h[0][:len(bearerPrefix)]), bearerPrefix) {
		rq.Who = auth.find(h[0][len(bearerPrefix):])
	}
	if rq.Who == nil {
		return web.Fail(401, web.Unauthorized, "a valid token is needed: Authorization: Bearer <token>")
	}
	return nil
}

// authorise holds the route against the token: a topic that is not the token's is not there at all.
func (rq *request) authorise() *web.Problem {
	if rq.Scope = rq.route.scope; rq.Who == nil {
		return nil
	}
	if rq.Topic != "" && !rq.Who.Sees(rq.Topic) {
		return rq.Who.NotReached(rq.Topic)
	}
	if p := rq.Who.Needs(rq.Scope); p != nil {
		return p
	}
	if rq.route.everyTopic && !rq.Who.SeesAll() {
		return web.Fail(403, web.Forbidden, `this spans all topics: the token needs the topics ["*"]`)
	}
	return nil
}
