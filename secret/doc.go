// Package secret keeps the texts that a copy of a data directory must not show: signing secrets, values of headers that look secret, the
// cluster's own secret. Keys seals such a text into an envelope, and opens it again. An envelope is a text itself, and goes wherever the
// text went: into commands, the log, snapshots, history and to other nodes.
//
//	0x01 | key id, 8 characters | base64url of: nonce (12 bytes), AES-256-GCM of the text | optionally: '.' and a fingerprint
//
// No header value and no signing secret can begin with the byte 1, so an envelope is never mistaken for one.
//
// Rules of use:
//
//  1. Seal before a command is proposed, open when a call leaves or a signature is made. What lies between never sees the text.
//  2. An envelope is bound to its Place: it does not open anywhere else.
//  3. Sealing is deterministic: one text in one place under one key has one envelope. So what compares or shares equal texts goes on to do
//     so, and learns no more than that they are equal. The nonce is a MAC of place and text.
//  4. Of several keys the first seals, all open. Envelopes stay as they are until somebody seals them anew: see Keys.Renew.
//
// A nil *Keys seals nothing, opens what is not sealed, and says of the rest which key it would need.
//
// It does not hide how long a text is, that it is there, or that two are equal; and a running process has keys and texts in memory.
package secret
