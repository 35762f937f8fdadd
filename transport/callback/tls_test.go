package callback

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// sealing is the server's end of a TLS connection that can keep its sealed records, so that a test
// decides which bytes of which record leave when.
type sealing struct {
	net.Conn
	keep   bool
	sealed []byte
}

func (s *sealing) Write(b []byte) (int, error) {
	if s.keep {
		s.sealed = append(s.sealed, b...)
		return len(b), nil
	}
	return s.Conn.Write(b)
}

// record seals one text as one record.
func (s *sealing) record(t *testing.T, secure *tls.Conn, text string) []byte {
	s.keep, s.sealed = true, nil
	defer func() { s.keep = false }()
	if n, err := io.WriteString(secure, text); err != nil || n != len(text) {
		t.Error(err)
	}
	if got := len(s.sealed); got < recordHeaderBytes || got != recordHeaderBytes+int(s.sealed[3])<<8+int(s.sealed[4]) {
		t.Errorf("%d bytes are not one record", got)
	}
	return s.sealed
}

// certificate is one for 127.0.0.1, and the pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	return server.TLS.Certificates[0], roots
}

// atTLSVersions runs a test at each version with a receiver that serves TLS
// connections by a script, and says over which version it was called.
func atTLSVersions(t *testing.T, test func(t *testing.T, receiveTLS func(script func(*sealing, *tls.Conn, *bufio.Reader)) (*receiver, *Pool))) {
	cert, roots := certificate(t)
	for name, version := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			test(t, func(script func(*sealing, *tls.Conn, *bufio.Reader)) (*receiver, *Pool) {
				config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: version, MaxVersion: version, DynamicRecordSizingDisabled: true}
				r := receive(t, func(c net.Conn, _ *bufio.Reader) {
					s := &sealing{Conn: c}
					secure := tls.Server(s, config)
					if err := secure.Handshake(); err != nil {
						t.Error(err)
						return
					}
					script(s, secure, bufio.NewReader(secure))
				})
				r.url = strings.Replace(r.url, "http:", "https:", 1)
				return r, startPool(t, Config{Policy: local, RootCAs: roots})
			})
		})
	}
}

// TestNothingIsLeftInTheTLSLayer: even if a receiver sends more behind its answer, the next call's
// answer is one that was made for the next call.
func TestNothingIsLeftInTheTLSLayer(t *testing.T) {
	forged := "HTTP/1.1 200 OK\r\nX-Pad: %s\r\nContent-Length: 0\r\n\r\n"
	// The buffer above the layer takes 16 KiB and holds the first record already, so
	// that much of the second, which is 16 KiB long, stays inside: the forged answer.
	long := func() (first, second string) {
		const size = 100 // of the first record, and of the forged answer
		first = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Pad: ", readBufferBytes-size-len("\r\n"))
		first += strings.Repeat("x", size-len(first)-len("\r\n")) + "\r\n"
		body := strings.Repeat("x", readBufferBytes-size-len("\r\n"))
		return first, "\r\n" + body + fmt.Sprintf(forged, strings.Repeat("x", size-len(forged)+len("%s")))
	}
	type wireBytes struct{ now, later []byte }
	cases := map[string]func(*testing.T, *sealing, *tls.Conn) wireBytes{
		"a second record": func(t *testing.T, s *sealing, c *tls.Conn) wireBytes {
			return wireBytes{now: append(s.record(t, c, answer200), s.record(t, c, answerOf(200))...)}
		},
		"half of a second record, the rest during the next call": func(t *testing.T, s *sealing, c *tls.Conn) wireBytes {
			first, second := s.record(t, c, answer200), s.record(t, c, answerOf(200))
			return wireBytes{append(first, second[:len(second)/2]...), second[len(second)/2:]}
		},
		"the header of a second record, the rest during the next call": func(t *testing.T, s *sealing, c *tls.Conn) wireBytes {
			first, second := s.record(t, c, answer200), s.record(t, c, answerOf(200))
			return wireBytes{append(first, second[:recordHeaderBytes]...), second[recordHeaderBytes:]}
		},
		"one byte of a second record, the rest during the next call": func(t *testing.T, s *sealing, c *tls.Conn) wireBytes {
			first, second := s.record(t, c, answer200), s.record(t, c, answerOf(200))
			return wireBytes{append(first, second[:1]...), second[1:]}
		},
		"the end of a record": func(t *testing.T, s *sealing, c *tls.Conn) wireBytes {
			first, second := long()
			return wireBytes{now: append(s.record(t, c, first), s.record(t, c, second)...)}
		},
		"both answers in one record": func(t *testing.T, s *sealing, c *tls.Conn) wireBytes {
			return wireBytes{now: s.record(t, c, answer200+answerOf(200))}
		},
	}
	atTLSVersions(t, func(t *testing.T, receiveTLS func(func(*sealing, *tls.Conn, *bufio.Reader)) (*receiver, *Pool)) {
		for name, bytes := range cases {
			t.Run(name, func(t *testing.T) {
				var calls atomic.Int32
				r, p := receiveTLS(func(s *sealing, c *tls.Conn, in *bufio.Reader) {
					for {
						if _, _, err := readRequest(in); err != nil {
							return
						}
						if calls.Add(1) > 1 {
							_, _ = io.WriteString(c, answerOf(500))
							continue
						}
						b := bytes(t, s, c)
						_, _ = s.Conn.Write(b.now)
						if b.later != nil {
							_, _, _ = readRequest(in)
							_, _ = s.Conn.Write(b.later)
						}
					}
				})
				if out := callOnce(t, p, post(r.url)); out.Status != 200 {
					t.Fatalf("%+v", out)
				}
				if out := callOnce(t, p, post(r.url)); out.Status != 500 {
					t.Errorf("the second call ended with %+v, want the answer 500 that was made for it", out)
				}
				if n := r.connections(); n != 2 {
					t.Errorf("%d connections, want 2", n)
				}
			})
		}
	})
}

// TestQuietTLSConnectionIsUsedAgain: records that are no data, and answers in many
// records, leave nothing behind.
func TestQuietTLSConnectionIsUsedAgain(t *testing.T) {
	atTLSVersions(t, func(t *testing.T, receiveTLS func(func(*sealing, *tls.Conn, *bufio.Reader)) (*receiver, *Pool)) {
		r, p := receiveTLS(func(s *sealing, c *tls.Conn, in *bufio.Reader) {
			for {
				if _, _, err := readRequest(in); err != nil {
					return
				}
				for _, part := range []string{"HTTP/1.1 2", "00 OK\r\nContent-Length: 40000\r\n", "\r\n", strings.Repeat("x", 40_000)} {
					_, _ = io.WriteString(c, part)
				}
			}
		})
		for range 20 {
			if out := callOnce(t, p, post(r.url)); out.Err != "" {
				t.Fatalf("%+v", out)
			}
		}
		if n := r.connections(); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// TestTLSClosesWithoutAGoodbye: a receiver that does not read could make its connection's last
// write block, and with it the sweep of all destinations.
func TestTLSClosesWithoutAGoodbye(t *testing.T) {
	atTLSVersions(t, func(t *testing.T, receiveTLS func(func(*sealing, *tls.Conn, *bufio.Reader)) (*receiver, *Pool)) {
		after := make(chan int64, 1)
		r, p := receiveTLS(func(s *sealing, c *tls.Conn, in *bufio.Reader) {
			_, _, _ = readRequest(in)
			_, _ = io.WriteString(c, answer200)
			n, _ := io.Copy(io.Discard, s.Conn)
			after <- n
		})
		if out := callOnce(t, p, post(r.url)); out.Err != "" {
			t.Fatalf("%+v", out)
		}
		p.all()[0].closeIdle(time.Now().Add(time.Second))
		if n := <-after; n != 0 {
			t.Errorf("%d bytes after the call", n)
		}
	})
}

// TestTLSSessionsAreResumed: a connection after the first one to a destination needs
// no certificate, and a destination at another port of the host has its own sessions.
func TestTLSSessionsAreResumed(t *testing.T) {
	cert, roots := certificate(t)
	for name, version := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: version, MaxVersion: version}
			var resumed, whole atomic.Int32
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.TLS.DidResume {
					resumed.Add(1)
				} else {
					whole.Add(1)
				}
				w.Header().Set("Connection", "close")
			})
			var urls []string
			for range 2 {
				server := httptest.NewUnstartedServer(handler)
				server.TLS = config.Clone()
				server.StartTLS()
				t.Cleanup(server.Close)
				urls = append(urls, server.URL)
			}
			p := startPool(t, Config{Policy: local, RootCAs: roots})
			for i, want := range []struct {
				port           int
				whole, resumed int32
			}{{0, 1, 0}, {0, 1, 1}, {0, 1, 2}, {1, 2, 2}, {1, 2, 3}, {0, 2, 4}} {
				if out := callOnce(t, p, post(urls[want.port])); out.Err != "" {
					t.Fatalf("%+v", out)
				}
				if whole.Load() != want.whole || resumed.Load() != want.resumed {
					t.Errorf("call %d: %d whole handshakes, %d resumed; want %+v", i+1, whole.Load(), resumed.Load(), want)
				}
			}
		})
	}
}
