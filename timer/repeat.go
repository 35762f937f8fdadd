package timer

// CatchUp is the treatment of occurrences that were missed while the cluster was down, the topic
// was paused, or the last occurrence still ran. The values are part of the log format.
type CatchUp uint8

// The kinds of catch-up.
const (
	CatchUpOne  CatchUp = iota // one call for all missed occurrences
	CatchUpSkip                // none: continue with the next one to come
	CatchUpAll                 // each, one after another
)

// Repeat makes a timer a series of occurrences: by Cron in Zone, or every EveryMs. The API checks
// its bounds.
type Repeat struct {
	Cron    string // five fields; "": EveryMs is used
	Zone    string // IANA; "" is UTC
	EveryMs int64  // from due time to due time
	UntilMs int64  // no occurrence is due after it; 0: open
	Count   int64  // number of occurrences; 0: open
	CatchUp CatchUp
	Overlap bool // the next occurrence does not wait for the end of the last
}
