package timer

// Size is about how many bytes a timer takes in memory.
func (t *Timer) Size() int {
	n := BaseSize + len(t.ID) + len(t.Payload) + len(t.ContentType) + len(t.Callback.URL) + len(t.LastError) + t.LastAnswer.Size()
	for i := range t.Callback.Headers {
		n += len(t.Callback.Headers[i].Name) + len(t.Callback.Headers[i].Value)
	}
	if t.Trace != nil {
		n += len(t.Trace.State)
	}
	for _, l := range t.Labels {
		n += len(l)
	}
	for _, o := range [...]*OutcomeTopic{t.OnDone, t.OnDead} {
		if o != nil {
			n += len(o.Name)
		}
	}
	return n
}

// Bounds of the timers of one id. Every change of them costs the same, however many there are.
const (
	// MaxDeadOfID is the most dead letters of one id. The next one replaces the oldest, which is
	// counted.
	MaxDeadOfID = 100
	// MaxLiveOfID is the most timers of one id that have not ended: occurrences that overlap, and
	// redriven ones. The next occurrence then waits for the end of another.
	MaxLiveOfID = 100
)

// MaxMs is the latest time of a timer, in Unix ms: 8,900 years. The API's horizon is far below.
const MaxMs = 1<<48 - 1

// ClampMs limits a time to the range of a timer.
func ClampMs(ms int64) int64 { return min(max(ms, 0), MaxMs) }

// State is the state of a timer.
type State uint8

// The states of a timer. The values are part of the snapshot format.
const (
	Scheduled State = 1 + iota // waits for its due time, or for its next attempt
	Leased                     // an attempt was committed and has not ended
	Done                       // delivered
	Dead                       // given up: see Reason
	Cancelled                  // cancelled before it was delivered
)

// Over reports whether the timer has ended.
func (s State) Over() bool { return s >= Done }

// Reason is why a timer is dead. The values are part of the log format.
type Reason uint8

// The reasons of API.md section 5.
const (
	NoReason Reason = iota
	MaxAttempts
	Expired
	Stopped
	Refused
)

// PayloadKind is the form in which the client gave the payload, and in which it is shown again.
type PayloadKind uint8

// The kinds of a payload. The values are part of the log format.
const (
	NoPayload     PayloadKind = iota
	JSONPayload               // any JSON value, its bytes kept as sent
	BinaryPayload             // given and shown as base64, kept decoded
)

// ContentType is that of a payload which comes with none.
func (k PayloadKind) ContentType() string {
	switch k {
	case JSONPayload:
		return "application/json"
	case BinaryPayload:
		return "application/octet-stream"
	}
	return ""
}

// Retry overrides the topic's retry policy by field; a zero field falls back.
// HasJitter distinguishes a jitter of zero from none given.
type Retry struct {
	MaxAttempts  int
	MinBackoffMs int64
	MaxBackoffMs int64
	Multiplier   float64
	Jitter       float64
	HasJitter    bool
}

func (r *Retry) Empty() bool { return *r == Retry{} }

// Spec holds everything that a client can set on a timer. It is encoded once, carried in the log
// unchanged, and kept as one block in the table's arena.
type Spec struct {
	DueMs          int64 // Unix ms, already rounded up
	Payload        []byte
	PayloadKind    PayloadKind
	HasExpiry      bool // of ExpiresAfterMs: 0 is not none
	Priority       uint8
	Weight         uint8  // of its key, see PerKey; 0: DefaultWeight
	ContentType    string // "": by PayloadKind
	Callback       Callback
	Retry          Retry
	Labels         []string
	ExpiresAfterMs int64
	Repeat         *Repeat       // nil: it fires once
	Trace          *Trace        // of the request that made it; nil: none
	OnDone, OnDead *OutcomeTopic // nil: as in the topic's policy

	// Collect is given with an add by MergeCollect. It is not kept with the timer.
	Collect *Collect
}

// Timer is the current state of a timer: a copy that its receiver owns. Times are Unix ms; 0 means
// absent unless noted otherwise.
type Timer struct {
	Topic      TopicID
	Occurrence uint32 // of its series, from 1; 0: it has none, or that continued without it
	ID         string
	Spec

	Seq     uint64  // the shard's number of this timer; grows with every create
	Origin  ShardID // that gave the number, if another one did before it was divided; 0: its own
	Tag     uint32  // random part of the uid
	Version uint32  // client changes; keeps growing when an id is used again within the history time

	State           State
	Reason          Reason // when Dead
	CancelRequested bool
	Paused          bool // while Scheduled: a client holds it
	Successor       bool // while Leased: another timer takes over when the attempt has ended
	// Full: its array takes no more.
	Full bool
	// Collected is how many payloads the array has of a timer that collects; 0: it does not.
	Collected uint16

	NextMs    int64 // next attempt, when Scheduled
	CreatedMs int64
	UpdatedMs int64 // last client change
	EndedMs   int64 // when Over
	FiredMs   int64 // start of the last attempt
	AskedMs   int64 // when Fire last asked for an attempt; 0 never
	// LatenessMs is the first attempt's start − the later of due and created, or − AskedMs if that
	// is earlier; -1 before the first attempt.
	LatenessMs int64

	Attempts   int    // calls started
	Fence      uint64 // lease number of the last attempt; grows over the life of the id
	LastStatus int    // HTTP status of the last attempt, 0 none
	LastError  string
	LastAnswer *Answer // to the last attempt, if that failed; nil: none

	Content uint64 // of the command that made it, or replaced it whole
	FirstMs int64  // the first add of those that were merged; 0: MaxWaitMs counts from now
}
