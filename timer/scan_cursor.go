package timer

// ScanCursor is how far a walk has come. The zero value is the beginning. It is good on every replica: a timer keeps its
// slot for life, and all replicas give a timer the same one.
type ScanCursor struct {
	From  Handle // slots up to this one are behind
	High  Handle // and these are all that there were at the first step
	Seq   uint64 // timers with a higher number came after the first step
	Begun bool
}

// Done reports that nothing is ahead.
func (w *ScanCursor) Done() bool { return w.Begun && w.From >= w.High }

// MaxScan bounds the limit of a query.
const MaxScan = 4096
