package audit

import "time"

// now is the system's clock.
func now() time.Time { return time.Now() }
