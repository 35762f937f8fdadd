package api

import (
	"strings"

	"carillon/transport/api/backend"
	"carillon/transport/api/web"
)

// Tenants knows whose a topic is, by the tokens of one reading of the auth file. It is comparable;
// the zero value knows nobody.
type Tenants struct{ of *principals }

// Tenants are those of the auth file as it stands; a may be nil.
func (a *Auth) Tenants() Tenants {
	if a == nil {
		return Tenants{}
	}
	return Tenants{a.principals.Load()}
}

// Of names the token that a topic belongs to: of those that may add to it, the one whose pattern
// determines most of its name, and of equals the first in the file. "" is nobody's. It looks at all
// tokens: the answer is worth keeping.
func (t Tenants) Of(topic string) string {
	if t.of == nil {
		return ""
	}
	most, name := -1, ""
	for i := range t.of.list {
		p := &t.of.list[i]
		if p.Scopes&web.ScopeAdd == 0 {
			continue
		}
		for _, pattern := range p.Topics {
			if exact := exactness(pattern); exact > most && backend.Match(pattern, topic) {
				most, name = exact, p.Name
			}
		}
	}
	return name
}

// exactness is how much a pattern determines: a whole name more than any with a star, and else each
// character counts.
func exactness(pattern string) int {
	stars := strings.Count(pattern, "*")
	if stars == 0 {
		return web.MaxTopicBytes + 1
	}
	return len(pattern) - stars
}
