package topics

import (
	"strings"

	"carillon/internal/secret"
	"carillon/timer"
	"carillon/transport/api/web"
	"carillon/transport/callback"
)

// readSecrets reads signing secrets. A fingerprint keeps the stored secret that it is of. No fault says
// a secret back.
func readSecrets(r *web.Reader, stored *timer.Policy) []string {
	var out []string
	n := r.Open('[', "secrets")
	for ; r.More(n, ']'); n++ {
		s := r.Text("secrets")
		if r.Err() != nil {
			return nil
		}
		if n == maxSecrets {
			r.Reject(r.OutOfRange("secrets: more than 3"))
			return nil
		}
		if strings.HasPrefix(s, fingerprintPrefix) {
			kept := ""
			if stored != nil {
				for _, have := range stored.Secrets {
					if Fingerprint(have) == s {
						kept = have
					}
				}
			}
			if kept == "" {
				r.Reject(r.OutOfRange("secrets: a fingerprint that no stored secret has"))
			}
			s = kept
		} else if _, err := callback.ParseSecret(s); err != nil {
			r.Reject(r.OutOfRange("secrets: each must be whsec_ and 24 to 64 bytes in base64"))
		}
		out = append(out, s)
	}
	return out
}

// Fingerprint is shown in the place of a secret: enough to tell one from another, nothing to sign
// with.
func Fingerprint(kept string) string { return secret.Fingerprint(kept) }

// fingerprints are how a policy's secrets are shown.
func fingerprints(p *timer.Policy) []string {
	out := make([]string, 0, len(p.Secrets))
	for _, kept := range p.Secrets {
		out = append(out, Fingerprint(kept))
	}
	return out
}
