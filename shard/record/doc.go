// Package record is the bodies of the log's records (docs/formats/records.md): entries, hard
// states, marks of snapshots, and the ends of replicas.
//
// A body begins with its version. What is read points into the body; a body that this build did not
// write is ErrMalformed, and never a panic. What the data of an entry say is not known here.
package record
