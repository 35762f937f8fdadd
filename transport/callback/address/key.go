package address

import (
	"net"
	"strconv"
)

// Key names a destination, and a breaker at it.
type Key struct {
	Scheme string // "http" or "https"
	Host   string // lower case, IPv6 without brackets
	Port   uint16

	// Scope "" is the breaker that all share. A topic with a breaker policy of its
	// own uses its name: own breaker, but the destination's slots and connections.
	Scope string
}

// ParseKey takes the destination from a URL that ValidateURL accepts.
func ParseKey(url string) (Key, error) {
	u, err := Parse(url)
	if err != nil {
		return Key{}, err
	}
	return Key{Scheme: u.Scheme, Host: u.Host, Port: u.Port}, nil
}

// String is scheme://host:port, the destination's name and the label of metrics.
func (k Key) String() string { return k.Scheme + "://" + k.HostPort() }

// HostPort is the address to dial.
func (k Key) HostPort() string {
	return net.JoinHostPort(k.Host, strconv.Itoa(int(k.Port)))
}

// Unscoped is the destination alone.
func (k Key) Unscoped() Key {
	k.Scope = ""
	return k
}
