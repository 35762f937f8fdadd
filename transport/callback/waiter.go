package callback

// Waiter hears of the slot that it queued for. It must be comparable (a pointer).
type Waiter interface {
	// Granted hands over a permit, which must be started or cancelled. It is called
	// on any goroutine, without locks, and must not block.
	Granted(Permit)
}
