package callback

import "crypto/tls"

// tlsConfig is the configuration that all connections to one destination share. Its session is
// resumed, which saves the receiver a signature and the call a round of certificates. A destination
// has a cache of its own because crypto/tls names a session by the host alone, and another port may
// be another's.
func (p *Pool) tlsConfig(k Key) *tls.Config {
	return &tls.Config{
		ServerName:         k.Host,
		RootCAs:            p.config.RootCAs,
		NextProtos:         []string{"http/1.1"},
		MinVersion:         tls.VersionTLS12,
		ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}
}
