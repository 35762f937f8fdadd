// Package wire is what one node has another decide or read, as bytes: requests, and answers that
// carry the result or an error.
//
// Every message begins with a version. Numbers are varints, texts have their length before them,
// commands and specs lie as in a batch (docs/formats/commands.md). Messages live as long as a
// connection: two versions meet only while a cluster is upgraded, and a node refuses what it does
// not know with encoding.ErrFormat, having done nothing.
//
// Decoders check every bound before they take memory: at most about 64 bytes for each of the input,
// whatever it says. What they return owns its memory; the input may be reused at once.
//
// How a node is reached, and which one decides, is not said here: node/route knows.
package wire
