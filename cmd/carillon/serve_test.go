package main

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"carillon/client"
	"carillon/test/freeport"
	"carillon/test/testkit"
)

// serveArgs is a command line for a node on free ports.
func serveArgs(args ...string) []string {
	return append([]string{"serve", "--http", "127.0.0.1:0"}, args...)
}

// serve starts a node on free ports and waits until it is ready.
func serve(t *testing.T, args ...string) (p *process, url string) {
	t.Helper()
	p = start(t, serveArgs(append([]string{"--shards", "4", "--log-level", "warn"}, args...)...)...)
	_, rest, _ := strings.Cut(p.line(t, "ready on"), "http://")
	address, _, _ := strings.Cut(rest, ",")
	return p, "http://" + address
}

// TestReadyOnAllInterfaces: where the node listens everywhere, the line that says so has an address
// that can be clicked on.
func TestReadyOnAllInterfaces(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"0.0.0.0:0", "[::]:0", ":0"} {
		p := start(t, "serve", "--http", address, "--insecure-no-auth", "--shards", "4", "--log-level", "error", "--data", t.TempDir()+"/data")
		_, rest, _ := strings.Cut(p.line(t, "ready on"), "ready on ")
		url, more, _ := strings.Cut(rest, ", ")
		if !strings.HasPrefix(url, "http://127.0.0.1:") || !strings.HasPrefix(more, "and on all other interfaces, data in ") {
			t.Errorf("%s: ready on %s", address, rest)
		}
		if out := ctlSays(t, url, "cluster"); !strings.Contains(out, ": healthy\n") {
			t.Errorf("%s: at %s: %s", address, url, out)
		}
	}
}

// ctl runs a ctl command that must succeed.
func ctlSays(t *testing.T, url string, args ...string) string {
	t.Helper()
	got := ctlAt(t, url)("", args...)
	if got.code != exitOK {
		t.Fatalf("ctl %v: exit %d: %s", args, got.code, got.err)
	}
	return got.out
}

// ctlAt runs commands against a node.
func ctlAt(t *testing.T, url string) func(stdin string, args ...string) result {
	return func(stdin string, args ...string) result {
		t.Helper()
		return carillon(t, stdin, nil, append([]string{"ctl", "--url", url}, args...)...)
	}
}

// The way a first user goes: a node, a receiver, a timer; and acknowledged timers outlive kill -9.
func TestServeFiresAndOutlivesAKill(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	receiver := start(t, "sink", "--listen", "127.0.0.1:0")
	_, callback, _ := strings.Cut(receiver.line(t, "receiving on "), "receiving on ")

	node, url := serve(t, "--data", data)
	ctlSays(t, url, "add", "try", "--id", "soon", "--delay", "50ms", "--payload", `{"n": 1}`, "--callback", callback)
	if line := receiver.line(t, "try/soon"); !strings.Contains(line, `{"n": 1}`) || strings.Contains(line, "!") {
		t.Errorf("the receiver saw %q", line)
	}
	ctlSays(t, url, "add", "try", "--id", "later", "--delay", "1h", "--payload", "[2]", "--callback", callback)
	ctlSays(t, url, "add", "try", "--id", "never", "--delay", "1h", "--callback", callback)
	if out := ctlSays(t, url, "cancel", "try", "never"); !strings.HasPrefix(out, "prevented") {
		t.Errorf("cancel: %s", out)
	}
	second := carillon(t, "", nil, serveArgs("--data", data)...)
	if second.code != exitFailure || strings.Count(second.err, "\n") > 3 {
		t.Errorf("a second node on the same directory: %+v", second)
	}

	node.signal(t, syscall.SIGKILL)
	node.wait(t)
	node, url = serve(t, "--data", data)
	if out := ctlSays(t, url, "list", "try"); !strings.Contains(out, "later") || strings.Contains(out, "never") {
		t.Errorf("after the kill:\n%s", out)
	}
	ctlSays(t, url, "fire", "try", "later")
	receiver.line(t, "try/later")
	node.signal(t, syscall.SIGTERM)
	if got := node.wait(t); got.code != exitOK {
		t.Errorf("after SIGTERM: %+v", got)
	}
	receiver.signal(t, syscall.SIGTERM)
	if got := receiver.wait(t); !strings.Contains(got.out, "received 2 ") || !strings.Contains(got.out, "early 0 ") {
		t.Errorf("the receiver counted %s", got.out)
	}
}

// A drain waits for the call in flight; a second signal does not.
func TestServeSecondSignalStopsAtOnce(t *testing.T) {
	called, release := make(chan struct{}), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(called)
		<-release
	}))
	defer receiver.Close()
	defer close(release)
	node, url := serve(t, "--data", filepath.Join(t.TempDir(), "data"))
	ctlSays(t, url, "add", "try", "--delay", "0s", "--callback", receiver.URL, "--max-attempts", "1")
	<-called
	node.signal(t, syscall.SIGTERM)
	node.signal(t, syscall.SIGINT) // another one: two of a kind may be merged by the system
	if got := node.wait(t); got.code != exitFailure || !strings.Contains(got.err, "second signal") {
		t.Errorf("got %+v", got)
	}
}

// TestServeOutlivesTheReadersOfItsOutput: lines that nobody can read are counted, and end nothing.
func TestServeOutlivesTheReadersOfItsOutput(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	testkit.Must(t, err)
	reader.Close()
	defer writer.Close()
	address := freeport.Address(t)
	cmd := command(t, nil, "serve", "--http", address, "--shards", "4", "--data", filepath.Join(t.TempDir(), "data"))
	cmd.Stdout, cmd.Stderr = writer, writer
	testkit.Must(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	hung := time.AfterFunc(deadline, func() { cmd.Process.Kill() })
	defer hung.Stop()
	lost := regexp.MustCompile(`(?m)^carillon_log_lines_lost_total [1-9]`)
	for !strings.Contains(bodyOf(address, "/readyz"), "ready") || !lost.MatchString(bodyOf(address, "/metrics")) {
		select {
		case err := <-ended:
			t.Fatal("the node has ended: ", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	called := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(called) }))
	defer receiver.Close()
	// By then it has announced on stdout that it is ready.
	ctlSays(t, "http://"+address, "add", "try", "--delay", "300ms", "--callback", receiver.URL)
	select {
	case <-called:
	case err := <-ended:
		t.Fatal("the node has ended: ", err)
	}
	testkit.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := <-ended; err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// bodyOf is the body of an answer, "" if there is none.
func bodyOf(address, path string) string {
	res, err := http.Get("http://" + address + path)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return ""
	}
	return string(body)
}

func TestServeReadsTheAuthFileAgainOnHangup(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	first, firstLine := newToken(t)
	second, secondLine := newToken(t)
	write := func(text string) {
		t.Helper()
		testkit.Must(t, os.WriteFile(tokens, []byte(text), 0o600))
	}
	write(firstLine)
	p := start(t, serveArgs("--data", filepath.Join(t.TempDir(), "data"), "--auth-file", tokens, "--log-level", "error")...)
	_, rest, _ := strings.Cut(p.line(t, "ready on"), "http://")
	address, _, _ := strings.Cut(rest, ",")
	topics := func(token string) int {
		return carillon(t, "", []string{"CARILLON_TOKEN=" + token, "CARILLON_URL=http://" + address}, "ctl", "topics").code
	}
	if topics(first) != exitOK || topics(first+"\n") != exitOK || topics(second) != exitFailure || topics("") != exitFailure {
		t.Fatal("the auth file does not hold")
	}
	write(firstLine + secondLine)
	p.signal(t, syscall.SIGHUP)
	// The signal is handled when it is handled: ask until the new token is known, or the test's own
	// deadline ends it.
	for topics(second) != exitOK {
		if t.Context().Err() != nil {
			t.Fatal("the new token never became known")
		}
	}
	if topics(first) != exitOK {
		t.Error("the first token was lost")
	}
}

// A SIGHUP that comes while a node reads its files for the first time ends nothing: the node reads
// them again. Here they come through a pipe, so that the test knows when they are read.
func TestServeHandlesAHangupWhileItStarts(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	testkit.Must(t, syscall.Mkfifo(tokens, 0o600))
	_, firstLine := newToken(t)
	second, secondLine := newToken(t)
	write := func(text string, whileRead func()) {
		t.Helper()
		var f *os.File
		for begun := time.Now(); f == nil; <-time.After(time.Millisecond) {
			var err error
			if f, err = os.OpenFile(tokens, os.O_WRONLY|syscall.O_NONBLOCK, 0); err != nil && time.Since(begun) > deadline {
				t.Fatalf("nobody reads the file: %v", err)
			}
		}
		defer f.Close()
		whileRead()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, serveArgs("--data", filepath.Join(t.TempDir(), "data"), "--auth-file", tokens, "--log-level", "error")...)
	write(firstLine, func() { p.signal(t, syscall.SIGHUP) })
	_, rest, _ := strings.Cut(p.line(t, "ready on"), "http://")
	address, _, _ := strings.Cut(rest, ",")
	write(firstLine+secondLine, func() {})
	for carillon(t, "", []string{"CARILLON_TOKEN=" + second, "CARILLON_URL=http://" + address}, "ctl", "topics").code != exitOK {
		if t.Context().Err() != nil {
			t.Fatal("the new token never became known")
		}
	}
}

func newToken(t *testing.T) (token, line string) {
	t.Helper()
	token, line, _ = strings.Cut(carillon(t, "", nil, "token", "--scopes", "add,cancel,read,topics,admin").out, "\n")
	return token, line
}

func TestServeAdminServesProfiles(t *testing.T) {
	p := start(t, serveArgs("--data", filepath.Join(t.TempDir(), "data"), "--admin", "127.0.0.1:0", "--log-format", "json")...)
	p.line(t, "ready on")
	p.signal(t, syscall.SIGTERM)
	got := p.wait(t)
	if got.code != exitOK || !strings.Contains(got.err, `/debug/pprof/"`) {
		t.Errorf("got %+v", got)
	}
	for line := range strings.Lines(got.err) {
		if !strings.HasPrefix(line, "{") {
			t.Errorf("stderr has a line that is not JSON: %s", line)
		}
	}
}

// A start that fails says why in one line, at any level of the log, and nothing else.
func TestServeSaysOneLineWhenItCannotStart(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	node, _ := serve(t, "--data", data)
	node.signal(t, syscall.SIGTERM)
	if got := node.wait(t); got.code != exitOK {
		t.Fatalf("%+v", got)
	}
	first, err := filepath.Glob(filepath.Join(data, "wal", "*", "FIRST"))
	if err != nil || len(first) == 0 {
		t.Fatal(first, err)
	}
	testkit.Must(t, os.WriteFile(first[0], []byte("damaged"), 0o644))
	got := carillon(t, "", nil, serveArgs("--data", data)...)
	if got.code != exitDown || got.out != "" || strings.Count(got.err, "\n") != 1 || !strings.HasPrefix(got.err, "carillon: ") {
		t.Errorf("%+v", got)
	}
}

func TestServeOnATakenPortExits1(t *testing.T) {
	_, url := serve(t, "--data", filepath.Join(t.TempDir(), "a"))
	address := strings.TrimPrefix(url, "http://")
	got := carillon(t, "", nil, serveArgs("--http", address, "--data", filepath.Join(t.TempDir(), "b"))...)
	if got.code != exitFailure || !strings.Contains(got.err, "carillon: ") || !strings.Contains(got.err, address) {
		t.Errorf("got %+v", got)
	}
}

// The API speaks TLS, the other commands trust the given authority, and a new certificate is shown
// after SIGHUP.
func TestServeTLS(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	makeCertificates(t, dir)
	flags := []string{"--data", file("data"), "--http-cert", file("node.pem"), "--http-key", file("node.key"), "--http-client-ca", file("ca.pem"), "--log-level", "error"}
	p := start(t, serveArgs(flags...)...)
	_, rest, ok := strings.Cut(p.line(t, "ready on"), "https://")
	if !ok {
		t.Fatal("it is not ready on https")
	}
	address, _, _ := strings.Cut(rest, ",")
	url := "CARILLON_URL=https://" + address
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"ctl topics --ca CA --client-cert CLIENT", exitOK, ""},
		{"ctl topics --client-cert CLIENT", exitFailure, "certificate"},
		{"ctl topics --ca CA", exitFailure, "certificate"},
		{"ctl topics --ca CLIENT.missing", exitUsage, "--ca"},
		{"ctl topics --ca KEY", exitUsage, "--ca"},
		{"ctl topics --client-cert CA", exitUsage, "--client-cert"},
		{"loadtest add -c 2 -n 20 -q --url https://" + address + " --ca CA --client-cert CLIENT", exitOK, ""},
	} {
		args := strings.NewReplacer("CLIENT", file("client.pem"), "CA", file("ca.pem"), "KEY", file("node.key")).Replace(c.args)
		if got := carillon(t, "", []string{url}, strings.Fields(args)...); got.code != c.code || !strings.Contains(got.err, c.says) {
			t.Errorf("%s: %+v", c.args, got)
		}
	}
	if got := carillon(t, "", nil, "ctl", "topics", "--url", "http://"+address); got.code != exitFailure || !strings.Contains(got.err, "use https") {
		t.Errorf("in clear: %+v", got)
	}
	serial := func() string {
		t.Helper()
		config, err := client.LoadTLS(file("ca.pem"), file("client.pem"))
		testkit.Must(t, err)
		conn, err := tls.Dial("tcp", address, config)
		testkit.Must(t, err)
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	before := serial()
	makeNodeCertificate(t, dir)
	p.signal(t, syscall.SIGHUP)
	for deadline := time.Now().Add(10 * time.Second); serial() == before; <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the new certificate is not shown")
		}
	}
	p.signal(t, syscall.SIGTERM)
	if got := p.wait(t); got.code != exitOK {
		t.Errorf("%+v", got)
	}
	if got := carillon(t, "", nil, serveArgs("--data", file("data"), "--http-cert", file("node.pem"))...); got.code != exitUsage || !strings.Contains(got.err, "give both or none") {
		t.Errorf("half of TLS: %+v", got)
	}
}

// TestBackupScheduleNeedsAPlace: times of backups alone make none, and are refused.
func TestBackupScheduleNeedsAPlace(t *testing.T) {
	t.Parallel()
	got := carillon(t, "", nil, serveArgs("--data", t.TempDir()+"/data", "--backup-every", "1 * * * *")...)
	if got.code != exitUsage || !strings.Contains(got.err, "carillon: --backup-every: needs --backup-to, as s3://BUCKET/PREFIX") {
		t.Errorf("%+v", got)
	}
}

// TestFaultsNameFlags: a fault of a setting begins with its flag, whoever has found it.
func TestFaultsNameFlags(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--shards: 0 is out of 1–65535":              {"--shards", "0"},
		"--topic-idle: must be more than 0":          {"--topic-idle", "0s"},
		"--shards: 65536 is out of 1–65535":          {"--shards", "65536"},
		"--shards: \"x\" is not a whole number":      {"--shards", "x"},
		"--http: \"here\" is not host:port":          {"--http", "here"},
		"--http-cert, --http-key: give both or none": {"--http-cert", "/nowhere"},
		"--http-key: stat /nowhere: no such file":    {"--http-cert", "/nowhere", "--http-key", "/nowhere"},
		"--gossip-key: ":                             {"--gossip-key", "/nowhere"},
		"--name: \"-\" must be ":                     {"--name=-", "--zone=-"},
	} {
		got := carillon(t, "", nil, serveArgs(append([]string{"--data", t.TempDir() + "/data"}, args...)...)...)
		if got.code != exitUsage || !strings.HasPrefix(got.err, "carillon: "+want) {
			t.Errorf("%q, wanted %q", got.err, want)
		}
		if len(args) == 2 && args[1] == "--zone=-" && !strings.Contains(got.err, "; --zone: ") {
			t.Errorf("the second fault of %q", got.err)
		}
	}
}

// makeCertificates writes ca.pem, and certificates of a client, with its key in one file, and of a
// node.
func makeCertificates(t *testing.T, dir string) {
	t.Helper()
	openssl(t, dir, "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem")
	makeNodeCertificate(t, dir)
	openssl(t, dir, "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=client -keyout client.key -out client.csr")
	openssl(t, dir, "x509 -req -in client.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out client.crt")
	var both []byte
	for _, name := range []string{"client.crt", "client.key"} {
		b := testkit.File(t, filepath.Join(dir, name))
		both = append(both, b...)
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "client.pem"), both, 0o600))
}

func makeNodeCertificate(t *testing.T, dir string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "node.ext"), []byte("subjectAltName = IP:127.0.0.1\n"), 0o600))
	openssl(t, dir, "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=node -keyout node.key -out node.csr")
	openssl(t, dir, "x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile node.ext -out node.pem")
}

func openssl(t *testing.T, dir, args string) {
	t.Helper()
	cmd := exec.Command("openssl", strings.Fields(args)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); errors.Is(err, exec.ErrNotFound) {
		t.Skip("openssl is not installed")
	} else if err != nil {
		t.Fatalf("openssl %s: %v: %s", args, err, out)
	}
}
