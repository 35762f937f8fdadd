// Package docs has the pages that a node shows.
package docs

import _ "embed" // for the page

// Errors is the page about the codes of errors.
//
//go:embed errors.md
var Errors string
