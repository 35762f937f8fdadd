package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// Hello is how a process names itself.
type Hello struct {
	Cluster string // "" while none is known
	Node    uint64
	Name    string
	Starts  uint32 // (Node, Starts) names a process
	Nonce   uint64 // random per process
	Version string
	Lane    Lane // the purpose of the connection; set by the transport
}

// Lane is the purpose of a connection.
type Lane uint8

// The links; LaneOnce is that of CallAddr.
const (
	LaneControl Lane = iota
	LaneCall
	LaneBulk
	LaneOnce
)

func (l Lane) String() string {
	if int(l) < len(laneNames) {
		return laneNames[l]
	}
	return fmt.Sprintf("link %d", uint8(l))
}

var laneNames = [...]string{"control", "call", "bulk", "once"}

// A handshake is one message each way, the dialler's first:
//
//	magic u32 | version u8 | what u8 | length u16 | xxh64 of the body u64 | body
//
// The field "what" is the link, in an answer welcome, refused or yourself. The body is a hello, in
// a refusal a text. This outline never changes, so that another version's refusal can be read.
const (
	magic            = 0x4e4c5243 // "CRLN"
	protocolVersion  = 1
	helloHeaderBytes = 16
	// Five fields: two integers and three strings of 255 bytes at most, or a text.
	maxHelloBytes = 1280
	maxNameBytes  = 255

	welcome  = 0
	refused  = 1
	yourself = 2 // refused: both ends are one process
)

var (
	errBadHello  = errors.New("malformed hello")
	errSpeaksTLS = errors.New("the dialler speaks TLS, this node does not: give all nodes the same key (--gossip-key), or certificates")
)

// tlsRecord is the first byte of a TLS handshake.
const tlsRecord = 22

// greeting is one message of a handshake.
type greeting struct {
	version byte
	what    byte
	body    []byte
}

func (g greeting) encode() []byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, helloHeaderBytes+len(g.body)), magic)
	b = append(b, g.version, g.what)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(g.body)))
	b = binary.LittleEndian.AppendUint64(b, xxhash.Sum64(g.body))
	return append(b, g.body...)
}

// readGreeting reads exactly one message.
func readGreeting(r io.Reader) (greeting, error) {
	var header [helloHeaderBytes]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return greeting{}, err
	}
	if header[0] == tlsRecord {
		return greeting{}, errSpeaksTLS
	}
	if binary.LittleEndian.Uint32(header[:]) != magic {
		return greeting{}, errors.New("the other side does not speak this protocol")
	}
	g := greeting{version: header[4], what: header[5]}
	length := int(binary.LittleEndian.Uint16(header[6:]))
	if length > maxHelloBytes {
		return greeting{}, errBadHello
	}
	g.body = make([]byte, length)
	if _, err := io.ReadFull(r, g.body); err != nil {
		return greeting{}, noEOF(err)
	}
	if xxhash.Sum64(g.body) != binary.LittleEndian.Uint64(header[8:]) {
		return greeting{}, errBadHello
	}
	return g, nil
}

func encodeHello(h Hello) ([]byte, error) {
	var b []byte
	for _, s := range [...]string{h.Cluster, h.Name, h.Version} {
		if len(s) > maxNameBytes {
			return nil, fmt.Errorf("hello: %.20q… has %d bytes, the limit is %d", s, len(s), maxNameBytes)
		}
		b = append(append(b, byte(len(s))), s...)
	}
	b = binary.LittleEndian.AppendUint64(b, h.Node)
	b = binary.LittleEndian.AppendUint32(b, h.Starts)
	return binary.LittleEndian.AppendUint64(b, h.Nonce), nil
}

func decodeHello(b []byte) (Hello, error) {
	var h Hello
	for _, s := range [...]*string{&h.Cluster, &h.Name, &h.Version} {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return Hello{}, errBadHello
		}
		end := 1 + int(b[0])
		*s, b = string(b[1:end]), b[end:]
	}
	if len(b) != 20 {
		return Hello{}, errBadHello
	}
	h.Node = binary.LittleEndian.Uint64(b)
	h.Starts = binary.LittleEndian.Uint32(b[8:])
	h.Nonce = binary.LittleEndian.Uint64(b[12:])
	return h, nil
}
