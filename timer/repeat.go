package timer

// CatchUp says what becomes of occurrences whose time passed while the cluster was down, the topic paused, or the last one still ran.
// The values are part of the log format.
type CatchUp uint8

// The ways to catch up.
const (
	CatchUpOne  CatchUp = iota // one call for all that were missed
	CatchUpSkip                // none: on with the next one to come
	CatchUpAll                 // each, one after the other
)

// Repeat makes a timer a series of occurrences: by Cron in Zone, or Every. Bounds are the API's.
type Repeat struct {
	Cron    string // five fields; "": Every counts
	Zone    string // IANA; "" is UTC
	EveryMs int64  // from due to due
	UntilMs int64  // no occurrence is due after it; 0 = open
	Count   int64  // of occurrences; 0 = open
	CatchUp CatchUp
	Overlap bool // the next occurrence does not wait for the end of the last
}
