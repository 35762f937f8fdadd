package timer

// LateMs is how many milliseconds past its due time an add counts as late.
const LateMs = 60_000

// Late reports whether a command with this due time is late that must not be.
func (c *Command) Late(dueMs, nowMs int64) bool { return c.NotLate && nowMs-dueMs > LateMs }
