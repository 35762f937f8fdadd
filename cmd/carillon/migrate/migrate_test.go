package migrate

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"carillon/cmd/carillon/terminal"
	"carillon/test/testkit"
	"carillon/transport/api/web"
)

func TestNamesBecomeThoseOfTheAPI(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, c := range []struct{ got, want string }{
		{idOf("order-77"), "order-77"}, {idOf("a b"), "sha256-c8687a08aa5d6ed2044328fa6a697ab8e96dc34291e8c2034ae8c38e6fcc6d65"},
		{idOf("..")[:7], "sha256-"}, {topicOf("mail"), "mail"}, {topicOf("a/b c"), "a_b_c"}, {topicOf("-x"), "q-x"}, {topicOf(""), "q"},
		{topicOf(long), long[:128]}, {labelOf("type", "image/resize"), "type=image_resize"}, {labelOf("type", long), "type=" + long[:59]},
	} {
		if c.got != c.want {
			t.Errorf("%q, wanted %q", c.got, c.want)
		}
	}
}

// A payload arrives with the bytes that it had, in one line of the file.
func TestPayloadsStayAsTheyAre(t *testing.T) {
	for payload, shown := range map[string]bool{
		`{"a": 1,  "b":"<&>"}`: true, `12345678901234567890`: true, "{\n}": false, "\x00\xff": false, "hello": false, "": false, "\"\xff\"": false,
		strings.Repeat("[", 65) + strings.Repeat("]", 65): false, strings.Repeat("[", 64) + strings.Repeat("]", 64): true,
	} {
		var out bytes.Buffer
		w := newWriter(&terminal.Terminal{Out: &out, Err: io.Discard})
		j := job{ID: "x"}
		j.carry([]byte(payload))
		testkit.Must(t, errors.Join(w.add(&j), w.close()))
		line := strings.TrimSuffix(out.String(), "\n")
		var got struct {
			Payload json.RawMessage `json:"payload"`
			Base64  string          `json:"payload_base64"`
			AtMs    int64           `json:"at_ms"`
		}
		err := json.Unmarshal([]byte(line), &got)
		text := string(got.Payload)
		if text == "" {
			raw, _ := base64.StdEncoding.DecodeString(got.Base64)
			text = string(raw)
		}
		if err != nil || text != payload || strings.Contains(line, "\n") || (got.Payload != nil) != shown || got.AtMs != web.LeastMs {
			t.Errorf("%q became %s: %v", payload, line, err)
		}
	}
}

func TestScores(t *testing.T) {
	for _, c := range []struct {
		unit, score string
		want        int64 // -1: refused
	}{
		{"s", "1764237600", 1764237600000}, {"s", "1764237600.1229999", 1764237600123}, {"s", "1764237600.1234", 1764237600124}, {"ms", "1764237600123", 1764237600123},
		{"ms", "1764237600", -1}, {"s", "1764237600123", -1}, {"s", "0", 0}, {"ms", "-inf", 0}, {"s", "inf", -1}, {"s", "nan", -1}, {"s", "soon", -1},
	} {
		r := redisCmd{Unit: c.unit}
		if got, err := r.moment(c.score); (err != nil) != (c.want < 0) || err == nil && got != c.want {
			t.Errorf("%s %s is %d, %v", c.score, c.unit, got, err)
		}
	}
}

// TestScoreBefore1973: the hint names another unit than the one that was taken.
func TestScoreBefore1973(t *testing.T) {
	for unit, want := range map[string]string{
		"ms": "score 1764237600 is before 1973: are these seconds (--unit s), or no Unix times?",
		"s":  "score 17642376 is before 1973: is it no Unix time?",
	} {
		score := map[string]string{"ms": "1764237600", "s": "17642376"}[unit]
		if _, err := (&redisCmd{Unit: unit}).moment(score); err == nil || err.Error() != want {
			t.Errorf("--unit %s: %v", unit, err)
		}
	}
}

func TestTasksOfAsynq(t *testing.T) {
	text := func(field uint64, s string) []byte {
		return append(binary.AppendUvarint(binary.AppendUvarint(nil, field<<3|2), uint64(len(s))), s...)
	}
	number := func(field, n uint64) []byte { return binary.AppendUvarint(binary.AppendUvarint(nil, field<<3), n) }
	msg := bytes.Join([][]byte{text(1, "mail"), text(2, "\x00{"), text(3, "id"), text(4, "q"), number(5, 25), number(6, 3), number(8, 1800), number(9, 2e9), text(14, "later")}, nil)
	got, err := decodeTask(msg)
	if err != nil || got.kind != "mail" || string(got.payload) != "\x00{" || got.retry != 25 || got.retried != 3 || got.deadline != 2e9 {
		t.Fatalf("%+v %v", got, err)
	}
	if j := got.job("id", 2e12-5000); j.Retry.MaxAttempts != 23 || j.ExpiresAfter != "5s" || j.Labels[0] != "type=mail" {
		t.Errorf("%+v", j)
	}
	for cut := range msg { // a message that was cut is refused, or ends with a field
		if short, err := decodeTask(msg[:cut]); err == nil && len(short.payload) > 2 {
			t.Errorf("%d bytes: %+v", cut, short)
		}
	}
	for _, bad := range []string{"\xff", "\x0a\x05a", "\x0b", "\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"} {
		if _, err := decodeTask([]byte(bad)); !errors.Is(err, errNoTask) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestPrioritiesKeepTheirOrder(t *testing.T) {
	many := make([]uint64, 1000)
	for i := range many {
		many[i] = uint64(i) * 1000
	}
	for _, all := range [][]uint64{{1024}, {0, 1024, 1 << 31}, many} {
		last := 256
		for _, pri := range all {
			got := rank(all, pri)
			if got < 0 || got > last || got > 255 || len(all) <= 256 && got == last {
				t.Fatalf("%d of %d is %d after %d", pri, len(all), got, last)
			}
			last = got
		}
		if last != 0 {
			t.Errorf("the least urgent of %d is %d", len(all), last)
		}
	}
}

// serve answers each connection with a text, whatever is asked.
func serve(t *testing.T, secure *tls.Config, answers string) (address string) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	t.Cleanup(func() { server.Close() })
	address = server.Addr().String()
	if secure != nil {
		server = tls.NewListener(server, secure)
	}
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, answers)
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	return address
}

// A sorted set that is changed while it is read gives no file that an import would take.
func TestSourceThatChanges(t *testing.T) {
	// WATCH, ZCARD, ZRANGE, MULTI, EXEC
	address := serve(t, nil, "+OK\r\n:1\r\n*2\r\n$1\r\na\r\n$10\r\n1764237600\r\n+OK\r\n*-1\r\n")
	var out, report bytes.Buffer
	r := redisCmd{RedisFlags: RedisFlags{"redis://" + address}, Zset: "delayed", Unit: "s"}
	if err := r.Run(&terminal.Terminal{Out: &out, Err: &report}); !errors.Is(err, errChanged) || strings.Contains(out.String(), `"end"`) || report.Len() > 0 {
		t.Errorf("%v, %s%s", err, &out, &report)
	}
}

// TestRedisOverTLS: the server's certificate must be of an authority that the system knows, and
// name the host.
func TestRedisOverTLS(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system's roots are not files that a test can name")
	}
	https := httptest.NewTLSServer(nil) // for its certificate, which names 127.0.0.1
	defer https.Close()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	testkit.Must(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw}), 0o600))
	t.Setenv("SSL_CERT_FILE", roots) // is read at the first use of the system's roots
	t.Setenv("SSL_CERT_DIR", t.TempDir())
	// AUTH, WATCH, ZCARD, ZRANGE, MULTI, EXEC
	address := serve(t, &tls.Config{Certificates: https.TLS.Certificates}, "+OK\r\n+OK\r\n:1\r\n*2\r\n$1\r\na\r\n$10\r\n1764237600\r\n+OK\r\n*0\r\n")
	_, port, _ := net.SplitHostPort(address)
	read := func(host string) (string, error) {
		var out bytes.Buffer
		r := redisCmd{RedisFlags: RedisFlags{"rediss://:secret@" + host + ":" + port}, Zset: "delayed", Unit: "s"}
		err := r.Run(&terminal.Terminal{Out: &out, Err: io.Discard})
		return out.String(), err
	}
	if got, err := read("127.0.0.1"); err != nil || !strings.Contains(got, `"id":"a"`) || !strings.Contains(got, `{"end":{"timers":1}}`) {
		t.Errorf("%v, %s", err, got)
	}
	if got, err := read("localhost"); err == nil || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "secret") || got != "" {
		t.Errorf("another name: %v, %s", err, got)
	}
}

// TestTubesOfOneTopic: tubes whose names become the same are one topic with one policy, the longest
// lease of all, and a warning.
func TestTubesOfOneTopic(t *testing.T) {
	answers := "USING carillon-migrate\r\nINSERTED 3\r\nDELETED\r\n"
	for _, stats := range []string{"tube: \"a+b\"\nttr: 60\n", "tube: \"a_b\"\nttr: 7200\n"} {
		stats += "pri: 5\nstate: ready\nage: 1\n"
		answers += fmt.Sprintf("OK %d\r\n%s\r\n", len(stats), stats)
	}
	address := serve(t, nil, answers+"FOUND 1 1\r\n7\r\nFOUND 2 1\r\n8\r\n")
	var out, report bytes.Buffer
	b := beanstalkdCmd{Address: address, Prefix: "job-", FirstID: 1}
	err := b.Run(&terminal.Terminal{Out: &out, Err: &report})
	got := out.String()
	if err != nil || strings.Count(got, `"policy"`) != 1 || !strings.Contains(got, `"topic":"a_b","policy":{"delivery":"pull","lease":"2h0m0s"}`) ||
		!strings.Contains(got, `"id":"job-1"`) || !strings.Contains(got, `"id":"job-2"`) || !strings.Contains(got, `{"end":{"timers":2}}`) {
		t.Errorf("%v, %s", err, got)
	}
	if want := "warning: a+b and a_b become one topic, a_b\n"; !strings.Contains(report.String(), want) {
		t.Errorf("%s", &report)
	}
}

// TestSortedSetThatIsNotThere: a wrong name gives no empty file that looks like success.
func TestSortedSetThatIsNotThere(t *testing.T) {
	address := serve(t, nil, "+OK\r\n:0\r\n+OK\r\n*0\r\n") // WATCH, ZCARD, MULTI, EXEC
	var out bytes.Buffer
	r := redisCmd{RedisFlags: RedisFlags{"redis://" + address}, Zset: "NOPE", Unit: "s"}
	err := r.Run(&terminal.Terminal{Out: &out, Err: io.Discard})
	if want := `there is no sorted set "NOPE" in this database, or it is empty`; err == nil || err.Error() != want || out.Len() > 0 {
		t.Errorf("%v, %s", err, &out)
	}
}

// TestQueuesThatAreNotThere: the same for a queue of Asynq and a tube, also beside one that is
// there.
func TestQueuesThatAreNotThere(t *testing.T) {
	for want, run := range map[string]func(*terminal.Terminal) error{
		"there is no queue mial of Asynq": func(to *terminal.Terminal) error {
			// SORT, WATCH, LLEN of active, SMEMBERS, EXISTS, LLEN of pending, ZCARD twice, MULTI, EXEC, ZCARD twice
			address := serve(t, nil, "*1\r\n$4\r\nmail\r\n+OK\r\n:0\r\n*0\r\n:0\r\n:0\r\n:0\r\n:0\r\n+OK\r\n*0\r\n:0\r\n:0\r\n")
			return (&asynqCmd{RedisFlags: RedisFlags{"redis://" + address}, Queue: []string{"mial"}}).Run(to)
		},
		"there are no jobs in tube mial": func(to *terminal.Terminal) error {
			const stats = "tube: mail\nttr: 60\npri: 5\nstate: ready\nage: 1\n"
			address := serve(t, nil, fmt.Sprintf("USING carillon-migrate\r\nINSERTED 2\r\nDELETED\r\nOK %d\r\n%s\r\nFOUND 1 1\r\n7\r\n", len(stats), stats))
			return (&beanstalkdCmd{Address: address, Tube: []string{"mail", "mial"}, Prefix: "job-", FirstID: 1}).Run(to)
		},
	} {
		var out bytes.Buffer
		if err := run(&terminal.Terminal{Out: &out, Err: io.Discard}); err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%v, want %s; %s", err, want, &out)
		}
	}
}
