// Package callback is the outgoing HTTP client: it calls receivers, and keeps
// one sick receiver from hurting any other.
//
// A Pool holds a bounded, evicting set of destinations (scheme, host, port).
// Each has its own connections, slots, moving latency and circuit breakers.
//
// Rules of use:
//
//  1. Acquire a Permit before the lease is committed. It never blocks and may
//     be called from any goroutine. The permit is both the concurrency slot and
//     the breaker's allowance, and is held until the call ends.
//  2. Then either Start it (once) or Cancel it (once). A permit that is neither
//     started nor cancelled holds its slot for ever. A started call begins at once, or, while
//     others keep its receiver busy, when one of those ends, 25 ms later at most: see destinationPace.
//  3. A caller without a slot waits, at the destination or for a slot of the node: see
//     delivery.Ask. Its waiters are called on any goroutine, with no lock held, and must not
//     block. When a breaker opens, those that wait for it are handed back.
//  4. done is called exactly once per started call, on a goroutine of the pool,
//     and must not block. The breaker has the outcome by then, and the slot
//     is freed after it.
//
// One call is one request on the wire: nothing is ever sent twice, redirects are
// not followed, no proxy is read from the environment. Retrying belongs to the
// replicated state machine above. The address policy decides at dial time on the
// resolved address.
package callback
