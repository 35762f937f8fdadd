// Package http1 decides where an HTTP/1 request ends and which path it names, before an HTTP
// library sees its bytes. A Framer follows a connection's stream; SplitTarget and SplitPath take a
// request target apart. A request that two servers could understand differently is refused, never
// corrected.
//
// Rules of use: one Framer for each connection, used by one goroutine. Feed may change the bytes
// that it refuses.
//
// Not here: headers that do not decide about framing (a library reads them), answers, connections
// and deadlines.
package http1
