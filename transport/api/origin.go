package api

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"carillon/transport/api/web"
)

// Which pages may ask (API.md section 1). A browser sends a page's requests to any address that the
// page names, so a page of a stranger could reach a node that only this machine can reach, in two
// ways: from its own origin, which Origin and Sec-Fetch-Site show; or by letting its own name point
// to the node (DNS rebinding), which Host shows. Both are refused, on nodes with tokens and
// without.

const maxHostBytes = 253 + len(":65535")

// checkHost refuses a request that is for somebody else.
func (rq *request) checkHost(target []byte) *web.Problem {
	c, ok := rq.Ctx.Conn().(*framedConn)
	if !ok {
		return nil // a test's
	}
	// For a proxy: then it has a host of its own, which goes before the header.
	if target[0] != '/' {
		if _, rest, found := bytes.Cut(target, []byte("://")); found {
			authority, _, _ := bytes.Cut(rest, []byte{'/'})
			if p := rq.mayBeFor(c, authority); p != nil {
				return p
			}
		}
	}
	host := rq.Ctx.Request.Header.Host()
	if len(host) == 0 || c.knownHost != "" && c.knownHost == string(host) {
		return nil // it may be missing in HTTP/1.0 alone, which no browser speaks: see http1.Framer
	}
	return rq.mayBeFor(c, host)
}

func (rq *request) mayBeFor(c *framedConn, host []byte) *web.Problem {
	name, address, _, ok := splitHost(string(host))
	if !ok {
		return web.Bad(web.BadRequest, "Host: is not a name or an address, perhaps with a port")
	}
	if !rq.s.ownHost(c, name, address) {
		if address.IsValid() && address.IsUnspecified() {
			return web.Fail(421, "misdirected", fmt.Sprintf("Host: %s stands for every address of a machine, and pages of strangers use it; ask for localhost", host))
		}
		return web.Fail(421, "misdirected", fmt.Sprintf("Host: %s is not a name of this node; --http-host gives it more names", host))
	}
	c.knownHost = string(host)
	return nil
}

// ownHost reports whether the node goes by a name or an address. Connections that stay on this
// machine may use any name of loopback.
func (s *Server) ownHost(c *framedConn, name string, address netip.Addr) bool {
	local := c.localAddress()
	if address.IsValid() && address == local || local.IsLoopback() && (address.IsLoopback() || name == "localhost") {
		return true
	}
	return slices.ContainsFunc(s.hosts, func(h ownHost) bool { return h.name == name })
}

// ownHost is one of the node's names, and perhaps the port at which browsers find it.
type ownHost struct{ name, port string }

// CheckHost is the reason why a name is not one for Config.Hosts.
func CheckHost(host string) error {
	_, err := parseHosts([]string{host})
	return err
}

// parseHosts reads the names that the configuration gives.
func parseHosts(list []string) ([]ownHost, error) {
	var hosts []ownHost
	for _, text := range list {
		name, _, port, ok := splitHost(text)
		if !ok {
			return nil, fmt.Errorf("%q is not a name or an address, perhaps with a port", text)
		}
		hosts = append(hosts, ownHost{name, port})
	}
	return hosts, nil
}

// splitHost takes a Host header apart: a name in lower case, or an address, as a name too; and the
// port, "" when there is none.
func splitHost(s string) (name string, address netip.Addr, port string, ok bool) {
	if s == "" || len(s) > maxHostBytes {
		return "", netip.Addr{}, "", false
	}
	if s[0] == '[' {
		inner, rest, closed := strings.Cut(s[1:], "]")
		a, err := netip.ParseAddr(inner)
		if !closed || err != nil || !a.Is6() || a.Zone() != "" || rest != "" && rest[0] != ':' {
			return "", netip.Addr{}, "", false
		}
		if rest != "" {
			port = rest[1:]
		}
		return a.Unmap().String(), a.Unmap(), port, rest == "" || validPort(port)
	}
	name, port, found := strings.Cut(s, ":")
	if found && !validPort(port) {
		return "", netip.Addr{}, "", false
	}
	if a, err := netip.ParseAddr(name); err == nil {
		return a.String(), a, port, true
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name, netip.Addr{}, port, name != "" && web.Only(name, web.TopicRest)
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s[0] != '+'
}

// checkOrigin refuses the request of a page of another origin, unless anybody may read the answer.
func (rq *request) checkOrigin(pat *pattern) *web.Problem {
	c, ok := rq.Ctx.Conn().(*framedConn)
	if !ok || !c.framer.Browser() {
		return nil
	}
	h := &rq.Ctx.Request.Header
	foreign := false
	for _, site := range h.PeekAll("Sec-Fetch-Site") {
		foreign = foreign || string(site) != "same-origin" && string(site) != "none"
	}
	origins := h.PeekAll("Origin")
	if rq.invited(origins) {
		return nil
	}
	for _, origin := range origins {
		foreign = foreign || !rq.s.ownOrigin(origin, h.Host())
	}
	read := rq.Ctx.IsGet() || rq.Ctx.IsHead()
	if !foreign || read && pat != nil && pat.open {
		return nil
	}
	return web.Fail(403, web.Forbidden, "a page of another origin may ask only for what needs no token")
}

// ownOrigin reports whether an Origin is where the request itself went, or a name of the node.
func (s *Server) ownOrigin(origin, host []byte) bool {
	scheme, authority, ok := bytes.Cut(origin, []byte("://"))
	usual := map[string]string{"http": "80", "https": "443"}[string(scheme)]
	if !ok || usual == "" {
		return false
	}
	name, _, port, ok := splitHost(string(authority))
	if !ok {
		return false
	}
	at := func(port string) string { return cmp.Or(port, usual) }
	hostName, _, hostPort, ok := splitHost(string(host))
	if ok && hostName == name && at(hostPort) == at(port) {
		return true
	}
	return slices.ContainsFunc(s.hosts, func(h ownHost) bool { return h.name == name && at(h.port) == at(port) })
}
