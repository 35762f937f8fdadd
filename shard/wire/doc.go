// Package wire encodes the requests by which one node has another decide or read, and the answers,
// which carry a result or an error.
//
// Every message begins with a version. Numbers are varints, texts follow their length, and commands
// and specs are encoded as in a batch (docs/formats/commands.md). Messages are not stored: two
// versions meet only while a cluster is upgraded. A node refuses a message that it does not know
// with encoding.ErrFormat and has done nothing.
//
// Decoders check every bound before they allocate: at most about 64 bytes for each byte of input.
// The results own their memory and the input may be reused, except for StateAnswer.Piece, which
// points into the input.
//
// How a node is reached, and which one decides, is up to package node/route.
package wire
