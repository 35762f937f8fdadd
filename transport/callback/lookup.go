package callback

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// A round hour asks for thousands of names at once. Resolvers drop or refuse what is too much for
// them (dnsmasq forwards 150 questions at once, and a name takes two): those calls would fail, and
// their receivers be blamed. So names wait here for a place, within the time of their calls.
const (
	lookupsAtOnce = 64
	// lookupPlace is how long a look-up keeps its place. One that takes longer goes on without: the
	// names of a zone that does not answer keep nobody else waiting for long.
	lookupPlace = 100 * time.Millisecond
	// A resolver that fails, and not the name, is asked again after a pause, and a longer one.
	lookupTries = 3
	lookupPause = 200 * time.Millisecond
)

// lookups are the places of names that are looked up. Cost: O(1) for each.
type lookups chan struct{}

// lookUp returns the addresses of a name.
func (p *Pool) lookUp(ctx context.Context, name string) (addrs []netip.Addr, err error) {
	for try := time.Duration(1); ; try++ {
		addrs, err = p.lookUpOnce(ctx, name)
		failed, is := errors.AsType[*net.DNSError](err)
		if !is || failed.IsNotFound || failed.IsTimeout || try == lookupTries {
			return addrs, err
		}
		select {
		case <-time.After(try * lookupPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (p *Pool) lookUpOnce(ctx context.Context, name string) ([]netip.Addr, error) {
	select {
	case p.lookups <- struct{}{}:
	case <-ctx.Done():
		return nil, &net.DNSError{Err: "too many names are looked up at once: the resolver is slow", Name: name, IsTimeout: true}
	}
	leave := sync.OnceFunc(func() { <-p.lookups })
	defer leave()
	defer time.AfterFunc(lookupPlace, leave).Stop()
	return p.config.Resolver.LookupNetIP(ctx, "ip", name)
}
