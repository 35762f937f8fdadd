// Package feature numbers what all replicas of a group must understand before one of them proposes
// it (docs/adr/0019-feature-levels.md).
package feature
