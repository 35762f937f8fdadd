package callback

import "crypto/tls"

// maxSessions bounds the TLS sessions that a pool remembers, of all destinations
// together. One is a few kilobytes.
const maxSessions = 4096

// tlsConfig is what all connections to one destination share. Sessions are resumed,
// which saves the receiver a signature and the call a round of certificates.
func (p *Pool) tlsConfig(k Key) *tls.Config {
	return &tls.Config{
		ServerName:         k.Host,
		RootCAs:            p.config.RootCAs,
		NextProtos:         []string{"http/1.1"},
		MinVersion:         tls.VersionTLS12,
		ClientSessionCache: sessionsOf{p.sessions, k.hostPort()},
	}
}

// sessionsOf keeps the sessions of one destination apart from those of another port
// of its host: crypto/tls names a session by the host alone.
type sessionsOf struct {
	all         tls.ClientSessionCache
	destination string
}

// Get implements tls.ClientSessionCache.
func (s sessionsOf) Get(string) (*tls.ClientSessionState, bool) { return s.all.Get(s.destination) }

// Put implements tls.ClientSessionCache.
func (s sessionsOf) Put(_ string, state *tls.ClientSessionState) { s.all.Put(s.destination, state) }
