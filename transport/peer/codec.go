package peer

import "bytes"

// Seal returns a control frame as it goes over the wire; sequence counts the frames of its
// connection. With Unseal it is for code that carries frames by other means than connections, as a
// simulator does.
func Seal(sequence uint32, payload []byte) []byte {
	b := appendFrame(nil, kindFrame, nil, payload)
	seal(b, sequence)
	return b
}

// Unseal takes frames off the bytes that a connection has brought, the first of them the one with
// that sequence number, and hands each to take. It returns the error that ends the connection:
// io.EOF if nothing but the end of the bytes does.
func Unseal(b []byte, sequence uint32, maxPayload int, take func(payload []byte)) error {
	r := newFrameReader(bytes.NewReader(b), maxPayload)
	r.sequence = sequence
	for {
		_, payload, _, err := r.next()
		if err != nil {
			return err
		}
		take(payload)
	}
}
