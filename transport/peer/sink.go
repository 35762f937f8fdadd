package peer

import (
	"encoding/binary"
	"fmt"
)

// Sink is where a file from another node goes. Its methods are called by one goroutine.
type Sink interface {
	// Have returns how many bytes are there from an earlier try: the sender continues from there.
	Have() int64
	// Write takes the next bytes. The chunk is valid during the call.
	Write(chunk []byte) error
	// Commit is called when all bytes are there. An error goes to the sender.
	Commit() error
	// Close comes last and once, after Commit too. Without Commit, keep the part that is there for
	// another try.
	Close()
}

// fileReceiver is the receiving side of one file.
type fileReceiver struct {
	c      *conn
	sink   Sink
	size   int64
	at     int64
	opened bool
	ended  bool // the end was sent; later bytes are passed over
}

func (f *fileReceiver) handle(kind byte, payload []byte, _ bool) error {
	switch {
	case kind == kindOpen && len(payload) >= 8 && !f.opened:
		f.opened = true
		return f.open(int64(binary.LittleEndian.Uint64(payload)), append([]byte(nil), payload[8:]...))
	case kind == kindChunk && f.ended:
		return nil
	case kind == kindChunk && f.opened:
		return f.write(payload)
	}
	return errProtocol
}

func (f *fileReceiver) open(size int64, header []byte) error {
	if size < 0 {
		return errProtocol
	}
	sink, err := f.c.t.config.Handler.OpenStream(f.c.hello.Node, header, size)
	if err != nil {
		return f.end(err)
	}
	f.sink, f.size, f.at = sink, size, sink.Have()
	if f.at < 0 || f.at > size {
		return f.end(fmt.Errorf("the receiver has %d bytes of %d", f.at, size))
	}
	if !f.c.out.pushWait(kindHave, binary.LittleEndian.AppendUint64(nil, uint64(f.at)), nil) {
		return nil // closed: the next read fails
	}
	return f.commitWhole()
}

func (f *fileReceiver) write(chunk []byte) error {
	if int64(len(chunk)) > f.size-f.at {
		return errProtocol
	}
	if !await(f.c.ctx, f.c.t.receiving, len(chunk)) { // meanwhile the sender is held up by TCP
		return nil // closed: the next read fails
	}
	if err := f.sink.Write(chunk); err != nil {
		return f.end(err)
	}
	f.at += int64(len(chunk))
	return f.commitWhole()
}

func (f *fileReceiver) commitWhole() error {
	if f.at < f.size {
		return nil
	}
	return f.end(f.sink.Commit())
}

// end reports to the sender; the connection stays until it hangs up.
func (f *fileReceiver) end(err error) error {
	f.ended = true
	head, text := [2]byte{statusOK, 0}, ""
	if err != nil {
		e := remoteError(err)
		head, text = [2]byte{statusError, e.Code}, e.Text
	}
	f.c.out.pushWait(kindEnd, head[:], []byte(text))
	return nil
}

func (f *fileReceiver) close() {
	if f.sink != nil {
		f.sink.Close()
	}
}
