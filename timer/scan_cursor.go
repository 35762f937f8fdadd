package timer

// ScanCursor is the progress of a walk. The zero value is the beginning. It is valid on every
// replica: a timer keeps its slot for life, and all replicas give it the same one.
type ScanCursor struct {
	From  Handle // slots up to this one are done
	High  Handle // highest slot at the first step
	Seq   uint64 // timers with a higher number were added after the first step
	Begun bool
}

// Done reports whether the walk has ended.
func (s *ScanCursor) Done() bool { return s.Begun && s.From >= s.High }

// MaxScan bounds the limit of a query.
const MaxScan = 4096
