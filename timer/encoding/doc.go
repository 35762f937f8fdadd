// Package encoding converts timers, their specs and clients' commands to bytes and back. The bytes
// are the same in the log, in snapshots, in the history and between nodes
// (docs/formats/commands.md).
//
// Rules of use:
//
//   - Append functions never fail; a text that is too long for its field is a mistake of the
//     caller, and panics.
//   - A Reader takes values off the front of a block. After the first fault all values are zero,
//     so callers check Err once. Its error wraps ErrFormat. A Reader returns parts of the block; a
//     Decode function returns memory of its own.
//   - Every bound is checked before memory is allocated. The input need not be trusted.
//   - Equal values make equal bytes. Nothing here may change without a feature level
//     (docs/adr/0019-feature-levels.md).
package encoding
