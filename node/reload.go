package node

import "errors"

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
		errs = append(errs, p.reloadKeys(), p.reloadVault())
		if p.trail != nil {
			p.trail.Reopen()
		}
	}
	return errors.Join(errs...)
}
