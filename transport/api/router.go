package api

import (
	"slices"
	"strings"

	"carillon/transport/api/web"
)

// maxSegments is one more than the longest route has.
const maxSegments = 7

// router finds the route of a decoded path: the patterns, by how many segments they have.
type router struct {
	byLength [maxSegments + 1][]*pattern
}

type pattern struct {
	segments []string
	routes   []*route
	allow    string // for 405
	open     bool   // to everybody, by every method
}

func newRouter(routes []route) *router {
	rt := &router{}
	for i := range routes {
		segments := strings.Split(routes[i].path[1:], "/")
		group := &rt.byLength[len(segments)]
		at := slices.IndexFunc(*group, func(p *pattern) bool { return slices.Equal(p.segments, segments) })
		if at < 0 {
			at = len(*group)
			*group = append(*group, &pattern{segments: segments, open: true})
		}
		p := (*group)[at]
		p.routes = append(p.routes, &routes[i])
		p.open = p.open && routes[i].scope == web.ScopeOpen
		if p.allow != "" {
			p.allow += ", "
		}
		if p.allow += routes[i].method; routes[i].method == "GET" {
			p.allow += ", HEAD"
		}
	}
	return rt
}

// find is the pattern of a path, nil when there is none.
func (rt *router) find(segments [][]byte) *pattern {
	if len(segments) > maxSegments {
		return nil
	}
	for _, p := range rt.byLength[len(segments)] {
		if p.starts(segments) {
			return p
		}
	}
	return nil
}

// next is the segment of a pattern that stands after these, the first of a path, "" when none does.
func (rt *router) next(segments [][]byte) string {
	for _, group := range rt.byLength[len(segments)+1:] {
		for _, p := range group {
			if p.starts(segments) {
				return p.segments[len(segments)]
			}
		}
	}
	return ""
}

// starts finds out whether a path of the pattern can have these segments first; it has as many.
func (p *pattern) starts(segments [][]byte) bool {
	for i, s := range segments {
		if want := p.segments[i]; want[0] != '{' && want != string(s) {
			return false
		}
	}
	return true
}

// method is the route for a method; HEAD is GET.
func (p *pattern) method(m []byte) *route {
	if string(m) == "HEAD" {
		m = []byte("GET")
	}
	for _, r := range p.routes {
		if r.method == string(m) {
			return r
		}
	}
	return nil
}

// param is the segment that stands where the pattern has the name, "" when it has none.
func (p *pattern) param(name string, segments [][]byte) []byte {
	for i, s := range p.segments {
		if s == name {
			return segments[i]
		}
	}
	return nil
}
