// Package loadtest drives a Carillon server over HTTP, measures it and checks
// that it keeps its promise. It is a black box test: the wire shapes are its
// own, and nothing of the server is imported.
//
// Run plays one of four modes. add: durable adds. fire: timers that fall due
// over time or in one instant. mixed: adds, changes, cancels and reads in given
// shares, while timers fire. churn: timers most of which are cancelled before
// they fire. Without a rate each connection sends its next request when it has
// the last answer (closed loop, as wrk). With a rate, requests have intended
// send times and latency counts from those (as wrk2), so that a stalled server
// cannot hide the requests that it kept from being sent.
//
// Every timer is booked in a ledger, eight bytes each. A timer is lost when its add was
// acknowledged, its due time has passed, nobody cancelled it and it did not arrive; or when the
// server no longer knows it. A change that timed out or was answered 5xx is unknown: it may have
// taken effect, and counts neither way. The built-in receiver compares every delivery, byte for
// byte, with the written payload, and its arrival with the due time on this machine's clock. Timers
// that are due long after the run are cancelled at its end, which checks that the server still
// holds them and leaves nothing behind.
//
// Equal seeds draw equal operations, delays and targets on each connection; the
// order among connections is the scheduler's.
//
// The tester reports its own CPU use, the built-in receiver's included, and reports
// so when it was itself the bottleneck.
package loadtest
