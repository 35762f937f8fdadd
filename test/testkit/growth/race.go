//go:build race

package growth

// slower is by how much the race detector slows the code down.
const slower = 10
