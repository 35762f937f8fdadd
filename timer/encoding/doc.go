// Package encoding turns timers, their specs and clients' commands into bytes and back, the same in the log, in snapshots, in the
// history and between nodes (docs/formats/commands.md).
//
// Rules of use:
//
//   - Append functions never fail; a text that is too long for its place is a mistake of the caller, and panics.
//   - A Reader takes values off the front of a block. After the first that is not there all others are zero: callers check Err once.
//     Its error wraps ErrFormat. What a Reader returns are parts of the block; what a Decode function returns owns its memory.
//   - Every bound is checked before memory is taken. Bytes of anybody may be read.
//   - Equal values make equal bytes. Nothing here may change without a feature level (docs/adr/0019-feature-levels.md).
package encoding
