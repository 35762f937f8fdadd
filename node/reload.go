package node

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"carillon/node/metrics"
)

// Reload, by SIGHUP, reads the auth file, the files of TLS, and the keys by which nodes know each
// other again, and opens the audit log by its name. A part that cannot be read stays as it was.
func (n *Node) Reload() error {
	var errs []error
	if n.auth != nil {
		errs = append(errs, n.auth.Reload())
	}
	if n.tls != nil {
		errs = append(errs, n.tls.Reload())
	}
	if p := n.run.Load(); p != nil {
		errs = append(errs, p.reloadKeys())
		if p.cfg.SecretsKeyFile != "" { // a node that began with keys has some for good
			errs = append(errs, p.openVault())
		}
		if p.trail != nil {
			p.trail.Reopen()
		}
	}
	return errors.Join(errs...)
}

// showCertificates adds to the metrics when the certificates end that were read last; each series
// has the name of the setting that names the file.
func (n *Node) showCertificates(m *metrics.Metrics, p *process) {
	show := func(of, file string, end func() time.Time) {
		if file == "" {
			return
		}
		m.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "carillon_certificate_not_after_timestamp_seconds", Help: "When the first of the certificates in that file ends.",
			ConstLabels: prometheus.Labels{"of": of},
		}, func() float64 { return float64(end().Unix()) }))
	}
	show("http_cert", n.cfg.HTTPCert, func() time.Time { return n.tls.Ends().Cert })
	show("http_client_ca", n.cfg.HTTPClientCA, func() time.Time { return n.tls.Ends().CA })
	show("peer_cert", n.cfg.PeerCert, func() time.Time { return p.peers.CertificateEnds().Cert })
	show("peer_ca", n.cfg.PeerCA, func() time.Time { return p.peers.CertificateEnds().CA })
}
