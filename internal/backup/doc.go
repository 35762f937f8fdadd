// Package backup reads and writes backup files: the states of all shards and of the meta group, one
// after another, in records with checksums. It does not interpret the states.
// docs/formats/backup.md describes the file.
//
// A Writer needs the memory of one record. Its output may be cut anywhere: a Reader detects that,
// and returns only verified bytes.
package backup
