// Package record encodes and decodes the bodies of the log's records (docs/formats/records.md):
// entries, hard states, snapshot marks and replica tombstones.
//
// A body starts with its version. Decoded data point into the body. A body that this build cannot
// have written gives ErrMalformed, never a panic. The package does not interpret the data of
// entries.
package record
