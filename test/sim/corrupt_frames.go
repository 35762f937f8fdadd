package sim

import (
	"bytes"
	"io"
	"time"

	"carillon/transport/peer"
)

// mostGarbled bounds a frame, as the peer transport does.
const mostGarbled = 80 << 20

// garbles draws whether to corrupt a frame, or a chunk of a snapshot, on its way, and reports it.
// The corrupted bytes pass through the transport's own codec. The codec must accept neither them
// nor anything behind them: the connection ends.
func (w *World) garbles(from, to *node, frame []byte) bool {
	r := w.ills
	if !r.hit(w.swarm.ailments.garbled) {
		return false
	}
	sequence := r.Uint32()
	sent := peer.Seal(sequence, frame)
	came := bytes.Clone(sent)
	switch at := r.IntN(len(came)); r.IntN(4) {
	case 0:
		came[r.IntN(len(came)-len(frame))] ^= 1 << r.IntN(8) // in the framing around the payload
	case 1:
		for end := min(len(came), at+1+r.IntN(40)); at < end; at++ {
			came[at] = byte(r.Uint32())
		}
	case 2:
		came = append(came[:at], came[at+1:]...)
	default:
		came[at] ^= 1 << r.IntN(8)
	}
	if bytes.Equal(came, sent) {
		return false
	}
	w.counts.Garbled++
	w.note(from, "garbled", to.id, uint64(len(frame)), "")
	came = append(came, peer.Seal(sequence+1, nil)...)
	came = append(came, peer.Seal(sequence+2, nil)...)
	taken := 0
	err := peer.Unseal(came, sequence, mostGarbled, func(payload []byte) {
		// If only the end of the frame was lost, it may have been the intact begin of the next one.
		if taken++; taken > 1 || !bytes.Equal(payload, frame) {
			w.violate("frame", "node %d accepts a frame of %d bytes from node %d that was corrupted on its way", to.id, len(payload), from.id)
		}
	})
	if err == io.EOF {
		w.violate("frame", "the connection from node %d to node %d goes on after a corrupted frame", from.id, to.id)
	}
	return true
}

// tear breaks a connection when a corrupted frame arrives; frames sent after it are lost too.
func (w *World) tear(from, to *node) {
	w.after(w.ills.between(w.swarm.delay/2, 2*w.swarm.delay), func() {
		if w.net.blocked(from.id, to.id) {
			return
		}
		w.counts.Cut++
		if w.net.torn == nil {
			w.net.torn = map[[2]uint64]time.Duration{}
		}
		w.net.torn[[2]uint64{from.id, to.id}] = w.now
		w.unreachable(from, to.id)
	})
}
