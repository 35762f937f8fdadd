package member

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"carillon/ring"
	"carillon/shard/wire"
	"carillon/timer"
)

const (
	heartbeatInterval = 250 * time.Millisecond
	maxLeads          = 65_536
	maxUnhealthyText  = 200
)

// heartbeat is a node's report of itself to every other one, four times a second.
type heartbeat struct {
	WallMs    int64 // its wall clock, believed or not
	Clock     heartbeatClock
	Starts    uint32
	Cordoned  bool   // it gives its leaderships away: it stops, drains, or is unhealthy
	Unhealthy string // why, if something is wrong with it
	Leads     []timer.ShardID
	Limits    ring.AllocationReport // its parts of topics' limits
	LowDisk   timer.LowDiskError    // of its disk; no Limit: it has room
}

// heartbeatClock is the part of a heartbeat on a node's clock.
type heartbeatClock struct {
	Known   bool          // false: the node has sent no heartbeat yet
	AheadMs int64         // of the time that the node believes; 0 if it goes by its clock
	Steps   uint32        // since its process began
	Steady  time.Duration // since its last step, or since it began
	Sure    bool          // it goes by its clock
}

// maxSteadyMs is 35 years.
const maxSteadyMs = 1 << 40

// believedMs is the time that the node went by when it sent the heartbeat.
func (h *heartbeat) believedMs() int64 { return h.WallMs - h.Clock.AheadMs }

// heartbeatFrame begins the control frames that carry a heartbeat; shard's begin with their own
// version.
const heartbeatFrame = 0xB1

var errHeartbeat = errors.New("malformed heartbeat")

func (h *heartbeat) encode() []byte {
	out := append(make([]byte, 0, 64+2*len(h.Leads)), heartbeatFrame)
	out = binary.AppendVarint(out, h.WallMs)
	out = binary.AppendUvarint(out, uint64(h.Starts))
	cordoned := byte(0)
	if h.Cordoned {
		cordoned = 1
	}
	why := h.Unhealthy[:min(len(h.Unhealthy), maxUnhealthyText)]
	out = append(append(out, cordoned, byte(len(why))), why...)
	out = binary.AppendVarint(out, h.Clock.AheadMs)
	out = binary.AppendUvarint(out, uint64(h.Clock.Steps))
	out = binary.AppendUvarint(out, uint64(max(h.Clock.Steady, 0).Milliseconds()))
	sure := byte(0)
	if h.Clock.Sure {
		sure = 1
	}
	out = append(out, sure)
	out = binary.AppendUvarint(out, uint64(len(h.Leads)))
	last := timer.ShardID(0)
	for _, id := range h.Leads {
		out = binary.AppendUvarint(out, uint64(id-last))
		last = id
	}
	out = appendLimits(out, &h.Limits)
	if h.LowDisk.Limit > 0 {
		out = wire.AppendLowDisk(out, &h.LowDisk)
	}
	return out
}

const (
	limitsListed  = 0 // to a node of an older kind: too much is held to name it
	limitsOmitted = 1

	// Flags of listed limits.
	limitsUnsure   = 1
	limitsKeyed    = 2 // each part has its number of keys
	limitsUnlisted = 4 // the nodes that are not heard take the place of those that are
)

func appendLimits(out []byte, report *ring.AllocationReport) []byte {
	if report.Omitted {
		return append(out, limitsOmitted)
	}
	flags := byte(0)
	if report.Unsure {
		flags = limitsUnsure
	}
	keyed := slices.ContainsFunc(report.Parts, func(p ring.Part) bool { return p.Keys > 0 })
	if keyed {
		flags |= limitsKeyed
	}
	if report.Unlisted {
		flags |= limitsUnlisted
	}
	out = binary.AppendUvarint(append(out, limitsListed, flags), report.Seq)
	if report.Unlisted {
		out = binary.AppendUvarint(out, uint64(len(report.Unheard)))
		for _, node := range report.Unheard {
			out = binary.AppendUvarint(out, node)
		}
	} else {
		out = binary.AppendUvarint(out, uint64(len(report.Received)))
		for _, ref := range report.Received {
			out = binary.AppendUvarint(binary.AppendUvarint(out, ref.Node), ref.Seq)
		}
	}
	out = binary.AppendUvarint(out, uint64(len(report.Parts)))
	before := timer.TopicID(0)
	for _, p := range report.Parts {
		out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(p.Topic-before)), uint64(p.Leases))
		if keyed {
			out = binary.AppendUvarint(out, uint64(p.Keys))
		}
		before = p.Topic
	}
	return out
}

func decodeHeartbeat(in []byte) (*heartbeat, error) {
	in = in[1:]
	number := func() uint64 {
		v, n := binary.Uvarint(in)
		if n <= 0 {
			in = nil
			return 0
		}
		in = in[n:]
		return v
	}
	var h heartbeat
	wall, n := binary.Varint(in)
	if n <= 0 {
		return nil, errHeartbeat
	}
	in = in[n:]
	h.WallMs, h.Starts = wall, uint32(number())
	if len(in) < 2 || len(in) < 2+int(in[1]) {
		return nil, errHeartbeat
	}
	h.Cordoned, h.Unhealthy = in[0] != 0, string(in[2:2+int(in[1])])
	in = in[2+int(in[1]):]
	ahead, n := binary.Varint(in)
	if n <= 0 {
		return nil, errHeartbeat
	}
	in = in[n:]
	h.Clock = heartbeatClock{Known: true, AheadMs: ahead, Steps: uint32(number()), Steady: time.Duration(min(number(), maxSteadyMs)) * time.Millisecond}
	if len(in) < 1 {
		return nil, errHeartbeat
	}
	h.Clock.Sure = in[0] != 0
	in = in[1:]
	count := number()
	if count > maxLeads || count > uint64(len(in)) {
		return nil, errHeartbeat
	}
	last := uint64(0)
	if count > 0 {
		h.Leads = make([]timer.ShardID, 0, count)
	}
	for range count {
		last += number()
		h.Leads = append(h.Leads, timer.ShardID(last))
	}
	var err error
	if h.Limits, in, err = decodeLimits(in, h.believedMs()); err != nil {
		return nil, err
	}
	if len(in) > 0 {
		if h.LowDisk, err = wire.DecodeLowDisk(in); err != nil || h.LowDisk.Limit == 0 {
			return nil, errHeartbeat
		}
	}
	return &h, nil
}

// decodeLimits reads the part of a heartbeat that is of limits, and gives the rest: a node of an
// older kind has another, or none.
func decodeLimits(in []byte, wallMs int64) (report ring.AllocationReport, rest []byte, err error) {
	report.WallMs = wallMs
	switch {
	case len(in) > 0 && in[0] == limitsOmitted:
		report.Omitted = true
		return report, in[1:], nil
	case len(in) < 2 || in[0] != limitsListed:
		report.Omitted = true
		return report, nil, nil
	}
	flags := in[1]
	report.Unsure, report.Unlisted = flags&limitsUnsure != 0, flags&limitsUnlisted != 0
	in = in[2:]
	bad := false
	number := func() uint64 {
		v, n := binary.Uvarint(in)
		if n <= 0 {
			in, bad = nil, true
			return 0
		}
		in = in[n:]
		return v
	}
	count := func() uint64 {
		n := number()
		bad = bad || n > uint64(len(in))
		return n
	}
	report.Seq = number()
	refs := count()
	if !bad && refs > 0 && !report.Unlisted {
		report.Received = make([]ring.ReportRef, 0, min(refs, uint64(len(in))/2)) // a pair takes two bytes
	}
	for range refs {
		if bad {
			break
		}
		if report.Unlisted {
			report.Unheard = append(report.Unheard, number())
		} else {
			report.Received = append(report.Received, ring.ReportRef{Node: number(), Seq: number()})
		}
	}
	topic := uint64(0)
	for range count() {
		if bad {
			break
		}
		topic += number()
		leases, keys := number(), uint64(0)
		if flags&limitsKeyed != 0 {
			keys = number()
		}
		bad = bad || topic > math.MaxUint32 || leases > math.MaxInt32 || keys > math.MaxInt32
		report.Parts = append(report.Parts, ring.Part{Topic: timer.TopicID(topic), Leases: int(leases), Keys: int(keys)})
	}
	if bad {
		return report, nil, errHeartbeat
	}
	return report, in, nil
}
