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
	"carillon/timer/encoding"
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
	Tight     bool                  // it has no memory for more shards
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
	why := h.Unhealthy[:min(len(h.Unhealthy), maxUnhealthyText)]
	out = append(append(out, encoding.Flag(h.Cordoned, 1), byte(len(why))), why...)
	out = binary.AppendVarint(out, h.Clock.AheadMs)
	out = encoding.AppendUvarints(out, uint64(h.Clock.Steps), uint64(max(h.Clock.Steady, 0).Milliseconds()))
	out = append(out, encoding.Flag(h.Clock.Sure, 1))
	out = binary.AppendUvarint(out, uint64(len(h.Leads)))
	last := timer.ShardID(0)
	for _, id := range h.Leads {
		out = binary.AppendUvarint(out, uint64(id-last))
		last = id
	}
	out = appendLimits(out, &h.Limits, encoding.Flag(h.Tight, memoryTight))
	if h.LowDisk.Limit > 0 {
		out = wire.AppendLowDisk(out, &h.LowDisk)
	}
	return out
}

const (
	limitsListed = 0 // begins the limits

	// Their flags.
	limitsUnsure   = 1
	limitsKeyed    = 2 // each part has its number of keys
	limitsUnlisted = 4 // the nodes that are not heard take the place of those that are
	memoryTight    = 8 // not of limits: heartbeat.Tight, for which all releases have room here
)

func appendLimits(out []byte, report *ring.AllocationReport, more byte) []byte {
	keyed := slices.ContainsFunc(report.Parts, func(p ring.Part) bool { return p.Keys > 0 })
	flags := more | encoding.Flag(report.Unsure, limitsUnsure) | encoding.Flag(keyed, limitsKeyed) | encoding.Flag(report.Unlisted, limitsUnlisted)
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
	r := encoding.Reader{Rest: in[1:]}
	h := heartbeat{WallMs: r.Varint(), Starts: uint32(r.Uvarint()), Cordoned: r.Byte() != 0}
	h.Unhealthy = string(r.Take(int(r.Byte())))
	h.Clock = heartbeatClock{
		Known: true, AheadMs: r.Varint(), Steps: uint32(r.Uvarint()), Steady: time.Duration(min(r.Uvarint(), maxSteadyMs)) * time.Millisecond, Sure: r.Byte() != 0,
	}
	if n := r.Count(maxLeads, 1, "shards"); n > 0 {
		h.Leads = make([]timer.ShardID, n)
	}
	last := uint64(0)
	for i := range h.Leads {
		last += r.Uvarint()
		h.Leads[i] = timer.ShardID(last)
	}
	h.Limits, h.Tight = decodeLimits(&r)
	h.Limits.WallMs = h.believedMs()
	if r.Fault != "" {
		return nil, errHeartbeat
	}
	if len(r.Rest) > 0 {
		var err error
		if h.LowDisk, err = wire.DecodeLowDisk(r.Rest); err != nil || h.LowDisk.Limit == 0 {
			return nil, errHeartbeat
		}
	}
	return &h, nil
}

// decodeLimits reads the part of a heartbeat that is of limits, and whether memory is tight.
func decodeLimits(r *encoding.Reader) (report ring.AllocationReport, tight bool) {
	if r.Byte() != limitsListed {
		r.Fail("limits of another kind")
	}
	flags := r.Byte()
	report.Unsure, report.Unlisted, report.Seq = flags&limitsUnsure != 0, flags&limitsUnlisted != 0, r.Uvarint()
	if report.Unlisted {
		for range r.Count(len(r.Rest), 1, "nodes") {
			report.Unheard = append(report.Unheard, r.Uvarint())
		}
	} else if n := r.Count(len(r.Rest), 2, "reports"); n > 0 {
		report.Received = make([]ring.ReportRef, n)
	}
	for i := range report.Received {
		report.Received[i] = ring.ReportRef{Node: r.Uvarint(), Seq: r.Uvarint()}
	}
	topic := uint64(0)
	for range r.Count(len(r.Rest), 2, "parts") {
		if topic += r.Uvarint(); topic > math.MaxUint32 {
			r.Fail("topic out of range")
		}
		p := ring.Part{Topic: timer.TopicID(topic), Leases: int(r.Number(math.MaxInt32, "leases"))}
		if flags&limitsKeyed != 0 {
			p.Keys = int(r.Number(math.MaxInt32, "keys"))
		}
		report.Parts = append(report.Parts, p)
	}
	return report, flags&memoryTight != 0
}
