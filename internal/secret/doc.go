// Package secret protects texts that a copy of a data directory must not show: signing secrets,
// values of secret headers, the cluster's own secret. Keys seals such a text into an envelope, and
// opens it again. An envelope is itself a text and replaces the plain one everywhere: in commands,
// the log, snapshots, history and between nodes.
//
//	0x01 | key id, 8 characters | base64url of: nonce (12 bytes), AES-256-GCM of the text |
//	optionally: '.' and a fingerprint
//
// No header value and no signing secret can begin with the byte 1, so neither is mistaken for an
// envelope.
//
// Rules of use:
//
//  1. Seal before a command is proposed; open when a call is sent or a signature is made. Code in
//     between never sees the text.
//  2. An envelope is bound to its Place and opens nowhere else.
//  3. Sealing is deterministic: a text has one envelope per place and key, because the nonce is a
//     MAC of place and text. So code that compares or shares equal texts still works, and learns
//     only that they are equal.
//  4. The first of several keys seals, all open. Envelopes change only when somebody renews them:
//     see Keys.Renew.
//
// A nil *Keys seals nothing and opens unsealed texts only; for an envelope its error names the key.
//
// Sealing does not hide the length of a text, its existence, or that two texts are equal. A running
// process has keys and texts in memory.
package secret
