//go:build amd64 || arm64

package wheel

// prefetch asks the processor to bring n into its cache, and does not wait.
// Walking a list of millions is otherwise one full memory latency per timer, as
// each address is known only once the node before has arrived. An ordinary load
// in its place holds up the walk and gains only half as much.
//
//go:noescape
func prefetch(n *node)
