package loadtest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// link is one worker's connection to one target. It is made when it is needed.
type link struct {
	target  target
	dial    dialFunc
	tls     *tls.Config
	timeout time.Duration
	fixed   []byte // see fixedHeaders

	mu       sync.Mutex // guards conn against the cut
	conn     net.Conn
	answers  *answers
	deadline time.Time
}

var errNoConnection = errors.New("no connection")

// ask sends a request and reads its answer, which has to come within the time-out of the time that
// the request was sent. The answer is valid until the next.
func (l *link) ask(ctx context.Context, sent time.Time, request []byte) (answer, error) {
	if l.conn == nil {
		if err := l.connect(ctx); err != nil {
			return answer{}, fmt.Errorf("%w: %w", errNoConnection, err)
		}
	}
	if sent.After(l.deadline.Add(-l.timeout)) {
		l.extend(ctx)
	}
	return l.answers.ask(request)
}

func (l *link) connect(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	conn, err := l.dial(within, "tcp", l.target.address)
	if err != nil {
		return err
	}
	if l.target.tls {
		host, _, _ := net.SplitHostPort(l.target.address)
		config := l.tls.Clone()
		config.ServerName = host
		conn = tls.Client(conn, config)
	}
	l.mu.Lock()
	l.conn = conn
	l.mu.Unlock()
	l.answers = newAnswers(conn)
	l.extend(ctx)
	return nil
}

func (l *link) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

// extend gives the connection its next deadline. The error of a dead connection
// shows at the next write.
func (l *link) extend(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return // cutDeadline has set the last one
	}
	l.deadline = time.Now().Add(l.timeout + deadlineSlack)
	_ = l.conn.SetDeadline(l.deadline)
}

// cutDeadline lets a request in flight come to its end soon.
func (l *link) cutDeadline() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		_ = l.conn.SetDeadline(time.Now().Add(cutGrace))
	}
}
