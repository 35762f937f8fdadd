package timer

// Bounds of what MergeCollect collects in one array.
const (
	MaxCollected      = 256 << 10 // bytes of the array as it is sent
	MaxCollectMax     = 10_000    // payloads
	DefaultCollectMax = 1_000
	MaxPart           = 64 // bytes of a part's name
	MaxDepth          = 64 // levels of a JSON payload, an array's too
)

// Collect is what an add by MergeCollect has in addition.
type Collect struct {
	Max int // so many payloads make the array full; 0: DefaultCollectMax
	// Part names the payload; "": it has no name. While an array of the id that has not ended has a
	// payload of that name, it is not appended.
	Part string
}

// FitsAlone reports whether a payload fits into an array of its own.
func FitsAlone(payload []byte) bool { return len(payload)+2 <= MaxCollected }

// NestsInArray reports whether a JSON payload as an element of an array is not too deep. O(bytes).
func NestsInArray(payload []byte) bool {
	depth, quoted := 1, false
	for i := 0; i < len(payload); i++ {
		switch c := payload[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			if depth++; depth > MaxDepth {
				return false
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return true
}

// collectMax is how many payloads make the array of an add full.
func (s *Spec) collectMax() int {
	if s.Collect == nil || s.Collect.Max == 0 {
		return DefaultCollectMax
	}
	return s.Collect.Max
}

// takes reports whether a pending timer takes one more payload into its array.
func (t *Timer) takes(payload []byte) bool {
	size := len(t.Payload)
	if t.Collected == 0 {
		size += len("[]")
	}
	return !t.Full && size+len(",")+len(payload) <= MaxCollected
}

// collect appends a payload to a timer's array. A timer without an array gets one, and its payload
// is the first.
func (t *Timer) collect(payload []byte) {
	array := append([]byte("["), t.Payload...)
	switch {
	case t.Collected > 0:
		array = append(array[1:len(array)-1], ',')
	case t.PayloadKind != NoPayload:
		array = append(array, ',')
		t.Collected = 1
	}
	t.Payload, t.PayloadKind, t.ContentType = append(append(array, payload...), ']'), JSONPayload, ""
	t.Collected++
}

// fill makes an array full: it is due now.
func (t *Timer) fill(nowMs int64) {
	t.Full = t.Collected > 0
	t.moveTo(min(t.DueMs, nowMs))
}

// moveTo changes the due time of a pending timer that was not attempted. An attempt that somebody
// has asked for by hand before that time stays.
func (t *Timer) moveTo(dueMs int64) {
	if dueMs = ClampMs(dueMs); dueMs == t.DueMs {
		return
	}
	next := dueMs
	if t.AskedMs != 0 {
		next = min(next, t.NextMs)
	}
	t.DueMs, t.NextMs = dueMs, next
}

// newCollecting makes a timer that an add by MergeCollect has made one with an array.
func (t *Timer) newCollecting(nowMs int64) {
	payload, most := t.Payload, t.collectMax()
	t.Payload, t.PayloadKind, t.Collect = nil, NoPayload, nil
	if t.collect(payload); int(t.Collected) >= most {
		t.fill(nowMs)
	}
}
