// Package feature defines feature levels: a group proposes the format of a level only after all its
// replicas understand it (docs/adr/0019-feature-levels.md).
package feature
