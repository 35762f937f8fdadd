// Package api is the HTTP server of a node: it reads requests strictly, has the handlers of its
// resources answer them, and keeps what clients hold within bounds. The contract is API.md;
// docs/openapi.yaml has the same for machines. DESIGN.md shows the packages below this one.
//
// The way of a request: a framedConn (conn.go) has checked every byte that decides where a message
// ends, with an http1.Framer, before fasthttp sees it; dispatch (dispatch.go) finds the route on
// the canonical decoded path and authorises; the handler that routes.go names, in the folder of its
// resource, reads the body with a web.Reader, asks the backend, and appends the answer straight
// into the response's buffer.
//
// Rules of use: New starts nothing; Serve blocks until its context ends and every request in flight
// has been answered or the grace is over. The strings and payloads of a command are never reused,
// so a backend may keep them.
//
// Not here: the effect of a change (package shard decides), when a timer fires, and the calls to
// receivers.
package api
