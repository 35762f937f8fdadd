package callback

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
	u, err := parseURL(url)
	if err != nil {
		return Key{}, err
	}
	return Key{Scheme: u.scheme, Host: u.host, Port: u.port}, nil
}

// String is scheme://host:port, the label of metrics.
func (k Key) String() string { return k.Scheme + "://" + k.hostPort() }

func (k Key) hostPort() string {
	return net.JoinHostPort(k.Host, strconv.Itoa(int(k.Port)))
}

// Destination is its destination's name, scheme://host:port, as Destinations has it.
func (k Key) Destination() string { return k.destination().String() }

func (k Key) destination() Key {
	k.Scope = ""
	return k
}
