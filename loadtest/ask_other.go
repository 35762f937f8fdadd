//go:build !unix

package loadtest

import "net"

type asker struct{ net.Conn }

func newAsker(conn net.Conn) net.Conn { return conn }

func (a *asker) ask(request, room []byte) (int, error) {
	if _, err := a.Write(request); err != nil {
		return 0, err
	}
	return a.Read(room)
}
