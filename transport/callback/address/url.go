// Package address decides where calls may go: which URLs are well formed, which destination each
// one names, and which addresses a policy lets a node call.
package address

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ErrBadURL is wrapped by every fault that ValidateURL finds.
var ErrBadURL = errors.New("bad callback url")

// maxURLBytes bounds a callback URL.
const maxURLBytes = 2 << 10

// URL is a callback's URL taken apart. Authority and Target are the user's own bytes: they go out
// as they were written.
type URL struct {
	Scheme    string // lower case
	Host      string // lower case, IPv6 without brackets
	Port      uint16
	Authority string // for the Host header
	Target    string // path and query; may be empty or start with '?'
}

// ValidateURL accepts the URLs to which a call can be made: http or https, a host, at most 2 KiB of
// printable ASCII, no userinfo, no fragment, port 1–65535, IPv4 in four decimals only, IPv6 without
// a zone, escapes that are whole, names of letters, digits, '-', '_', '.'.
func ValidateURL(url string) error {
	_, err := Parse(url)
	return err
}

func badURL(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadURL, fmt.Sprintf(format, args...))
}

// Parse takes apart a URL that ValidateURL accepts.
func Parse(url string) (URL, error) {
	if len(url) > maxURLBytes {
		return URL{}, badURL("longer than %d bytes", maxURLBytes)
	}
	for i := 0; i < len(url); i++ {
		switch c := url[i]; {
		case c <= ' ' || c == 0x7f:
			return URL{}, badURL("byte %d is a space or a control character", i)
		case c > 0x7f:
			return URL{}, badURL("byte %d is not ASCII: spell the host's name in punycode (xn--…), and a path or query with percent signs", i)
		case c == '\\':
			return URL{}, badURL("backslash at byte %d", i)
		case c == '#':
			return URL{}, badURL("has a fragment")
		case c == '%' && (len(url) < i+3 || !isHex(url[i+1]) || !isHex(url[i+2])):
			return URL{}, badURL("percent sign without two hexadecimal digits at byte %d", i)
		}
	}
	u, rest, err := cutScheme(url)
	if err != nil {
		return URL{}, err
	}
	u.Authority = rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		u.Authority, u.Target = rest[:i], rest[i:]
	}
	if strings.IndexByte(u.Authority, '@') >= 0 {
		return URL{}, badURL("has userinfo")
	}
	host, port, hasPort, err := cutPort(u.Authority)
	if err != nil {
		return URL{}, err
	}
	if hasPort {
		if u.Port, err = parsePort(port); err != nil {
			return URL{}, err
		}
	}
	if u.Host, err = parseHost(host); err != nil {
		return URL{}, err
	}
	return u, nil
}

// cutScheme sets the scheme and the default port, and returns the rest after "://".
func cutScheme(url string) (URL, string, error) {
	switch {
	case len(url) >= 7 && strings.EqualFold(url[:7], "http://"):
		return URL{Scheme: "http", Port: 80}, url[7:], nil
	case len(url) >= 8 && strings.EqualFold(url[:8], "https://"):
		return URL{Scheme: "https", Port: 443}, url[8:], nil
	}
	return URL{}, "", badURL("must start with http:// or https://")
}

func cutPort(authority string) (host, port string, hasPort bool, err error) {
	if strings.HasPrefix(authority, "[") {
		end := strings.IndexByte(authority, ']')
		if end < 0 {
			return "", "", false, badURL("unclosed bracket")
		}
		host, port = authority[:end+1], authority[end+1:]
		if port == "" {
			return host, "", false, nil
		}
		if port[0] != ':' {
			return "", "", false, badURL("garbage after the bracket")
		}
		return host, port[1:], true, nil
	}
	host, port, hasPort = strings.Cut(authority, ":")
	return host, port, hasPort, nil
}

func parsePort(s string) (uint16, error) {
	if s == "" || s[0] < '1' || s[0] > '9' { // no empty, signed, zero or zero-led port
		return 0, badURL("port must be 1–65535")
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, badURL("port must be 1–65535")
	}
	return uint16(n), nil
}

func parseHost(host string) (string, error) {
	if host == "" {
		return "", badURL("has no host")
	}
	if host[0] == '[' {
		addr, err := netip.ParseAddr(host[1 : len(host)-1])
		switch {
		case err != nil || !addr.Is6():
			return "", badURL("not an IPv6 address in brackets")
		case addr.Zone() != "":
			return "", badURL("IPv6 zone")
		}
		return addr.String(), nil // one spelling, one destination
	}
	if err := checkHostName(host); err != nil {
		return "", err
	}
	return strings.ToLower(host), nil
}

// checkHostName holds a name against the shape of DNS names. A name whose last
// label is a number is an address to some resolvers (127.1, 0x7f.1, 2130706433),
// so it must be one in the only form that all read alike.
func checkHostName(host string) error {
	if len(host) > 254 {
		return badURL("host longer than 254 bytes")
	}
	name := strings.TrimSuffix(host, ".")
	last := name
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return badURL("host has an empty label or one over 63 bytes")
		}
		for i := 0; i < len(label); i++ {
			c := label[i]
			if !isAlnum(c) && c != '-' && c != '_' {
				return badURL("host holds %q", c)
			}
		}
		last = label
	}
	if isNumber(last) {
		if addr, err := netip.ParseAddr(host); err != nil || !addr.Is4() {
			return badURL("an IPv4 address must have four decimal numbers")
		}
	}
	return nil
}

// isNumber reports whether a resolver might read the label as part of an address.
func isNumber(label string) bool {
	if len(label) >= 2 && label[0] == '0' && (label[1]|0x20) == 'x' {
		return true
	}
	for i := 0; i < len(label); i++ {
		if label[i] < '0' || label[i] > '9' {
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
