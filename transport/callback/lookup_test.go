package callback

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// limitedResolver answers each question after a while with 127.0.0.1, and refuses those beyond the
// number that it takes at once, as dnsmasq does. Of names that begin with "dead." it answers none.
type limitedResolver struct {
	takes int
	after time.Duration

	mu             sync.Mutex
	asked, refused int
}

func (l *limitedResolver) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go l.serve(theirs)
		return ours, nil
	}}
}

// serve answers the one question of a connection, in the framing of TCP.
func (l *limitedResolver) serve(conn net.Conn) {
	defer conn.Close()
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return
	}
	question := make([]byte, binary.BigEndian.Uint16(size[:]))
	var m dnsmessage.Message
	if _, err := io.ReadFull(conn, question); err != nil || m.Unpack(question) != nil {
		return
	}
	q := m.Questions[0]
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	switch {
	case !l.takesOne():
		m.RCode = dnsmessage.RCodeRefused
	case strings.HasPrefix(q.Name.String(), "dead."):
		_, _ = conn.Read(size[:]) // until it is given up
		return
	default:
		<-time.After(l.after)
		l.mu.Lock()
		l.asked--
		l.mu.Unlock()
		if q.Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}, Body: &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}}}
		}
	}
	if packed, err := m.Pack(); err == nil {
		_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...))
	}
}

func (l *limitedResolver) takesOne() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked >= l.takes {
		l.refused++
		return false
	}
	l.asked++
	return true
}

// lookUpAll looks up n names at once, and returns how many were not found and how long all took.
func lookUpAll(t *testing.T, p *Pool, n int, name string) (failed int, took time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	began := time.Now()
	errs := make(chan error, n)
	for i := range n {
		go func() {
			_, err := p.lookUp(ctx, fmt.Sprintf(name, i))
			errs <- err
		}()
	}
	for range n {
		if err := <-errs; err != nil {
			failed++
		}
	}
	return failed, time.Since(began)
}

// inBubble runs a test on a clock of its own. The resolver's settings, which all share, are read
// before.
func inBubble(t *testing.T, test func(t *testing.T)) {
	_, _ = (&net.Resolver{PreferGo: true}).LookupHost(t.Context(), "localhost")
	synctest.Test(t, test)
}

// TestManyNamesAtOnce: a resolver that takes 150 questions at once gets no more, whatever number of
// names is looked up, and is kept busy.
func TestManyNamesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := &limitedResolver{takes: 150, after: 50 * time.Millisecond}
		failed, took := lookUpAll(t, New(Config{Resolver: l.resolver()}), 2048, "r%d.example.")
		if failed > 0 || l.refused > 0 || took > 2048/lookupsAtOnce*l.after {
			t.Errorf("%d of 2048 names failed, %d questions were refused, in %v", failed, l.refused, took)
		}
	})
}

// TestResolverThatFailsIsAskedAgain: a call does not fail because its name was refused once.
func TestResolverThatFailsIsAskedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := &limitedResolver{takes: 20, after: 10 * time.Millisecond}
		if failed, _ := lookUpAll(t, New(Config{Resolver: l.resolver()}), 12, "r%d.example."); failed > 0 || l.refused == 0 {
			t.Errorf("%d of 12 names failed, %d questions were refused", failed, l.refused)
		}
	})
}

// TestNamesThatDoNotAnswer: names whose servers are silent keep no other waiting for long.
func TestNamesThatDoNotAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := &limitedResolver{takes: 1 << 30}
		p := New(Config{Resolver: l.resolver()})
		var dead sync.WaitGroup
		for range 4 {
			dead.Go(func() { lookUpAll(t, p, lookupsAtOnce, "dead.%d.example.") })
		}
		<-time.After(time.Millisecond)
		if failed, took := lookUpAll(t, p, 1, "alive%d.example."); failed > 0 || took > 4*lookupPlace {
			t.Errorf("a name that is known waited for %v; failed: %d", took, failed)
		}
		dead.Wait()
	})
}

// TestTimeOutOfALookupIsTheResolvers: last_error distinguishes a resolver that does not answer from a
// receiver that does not.
func TestTimeOutOfALookupIsTheResolvers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p := New(Config{Resolver: (&limitedResolver{takes: 1 << 30}).resolver()})
		for what, busy := range map[string]bool{"asked": false, "waits": true} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			for range lookupsAtOnce {
				if busy {
					p.lookups <- struct{}{}
				}
			}
			_, err := p.lookUp(ctx, "dead.example.")
			if text := fault(err); text != "name lookup failed: timeout" {
				t.Errorf("%s: %q: %v", what, text, err)
			}
			cancel()
			for len(p.lookups) > 0 {
				<-p.lookups
			}
			<-time.After(time.Minute) // the resolver gives up
		}
	})
}
