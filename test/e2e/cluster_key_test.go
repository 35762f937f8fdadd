package e2e

import (
	le "encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

// identityOf reads the node's identity from a data directory.
func identityOf(t testing.TB, dir string) (id struct {
	NodeID    uint64 `json:"node_id"`
	Starts    uint32 `json:"starts"`
	ClusterID string `json:"cluster_id"`
}) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "identity.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &id); err != nil {
		t.Fatal(err)
	}
	return id
}

// peerHello is a hello on one of the lanes, in the format of docs/formats/peer.md.
func peerHello(lane byte, cluster, name string, node uint64, starts uint32) []byte {
	var body []byte
	for _, s := range []string{cluster, name, "test"} {
		body = append(append(body, byte(len(s))), s...)
	}
	body = le.LittleEndian.AppendUint64(body, node)
	body = le.LittleEndian.AppendUint32(body, starts)
	body = le.LittleEndian.AppendUint64(body, 4242)
	b := le.LittleEndian.AppendUint32(nil, 0x4e4c5243)
	b = append(b, 1, lane)
	b = le.LittleEndian.AppendUint16(b, uint16(len(body)))
	return append(le.LittleEndian.AppendUint64(b, xxhash.Sum64(body)), body...)
}

// peerFrame is a frame of a kind with its sequence number in the connection.
func peerFrame(sequence uint32, kind byte, payload []byte) []byte {
	rest := append(le.LittleEndian.AppendUint32(nil, sequence), kind)
	rest = append(rest, payload...)
	b := le.LittleEndian.AppendUint32(nil, uint32(len(payload)))
	return append(le.LittleEndian.AppendUint64(b, xxhash.Sum64(rest)), rest...)
}

// say sends bytes to an address and returns the answer: the bytes that arrive within a second or
// until the peer closes.
func say(t testing.TB, address string, wire []byte) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatalf("dial %s: %v", address, err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write(wire)
	answer, _ := io.ReadAll(conn) // bytes before an error count
	return string(answer)
}

// harangue sends every message that a stranger can send to a peer port, under each of the node ids:
// hellos of a newer start, commands that pause a topic, requests to join.
func harangue(t testing.TB, address string, cluster, name string, ids ...uint64) (answers []string) {
	t.Helper()
	command := []byte(`{"verb":"pause","name":"kept"}`)
	call := func(method byte, body []byte) []byte {
		payload := le.LittleEndian.AppendUint64(nil, 1)
		payload = le.LittleEndian.AppendUint32(payload, 1000)
		return peerFrame(0, 2, append(append(payload, method), body...))
	}
	for _, id := range ids {
		joins := []byte(fmt.Sprintf(`{"id":%d,"name":%q,"peer":"127.0.0.1:9","gossip":"127.0.0.1:9"}`, id, name))
		for lane := byte(0); lane < 4; lane++ {
			hello := peerHello(lane, cluster, name, id, 99)
			for _, more := range [][]byte{nil, call(16, command), call(17, joins), call(18, []byte("null")), call(19, nil), call(21, nil), peerFrame(0, 1, []byte{0xB1}), peerFrame(0, 4, make([]byte, 64))} {
				answers = append(answers, say(t, address, append(hello[:len(hello):len(hello)], more...)))
			}
		}
	}
	return append(answers, say(t, address, []byte("GET / HTTP/1.1\r\n\r\n")), say(t, address, make([]byte, 4096)))
}

// TestStrangersAtThePeerPort: a stranger without the cluster's key changes nothing through the peer
// port and learns nothing there.
func TestStrangersAtThePeerPort(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	c.keepTimers(t, "kept", 0, 10)
	victim := c.members[0]
	own, other := identityOf(t, victim.dir), identityOf(t, c.members[1].dir)
	for i, answer := range harangue(t, victim.peer, own.ClusterID, victim.name, own.NodeID, other.NodeID, 4711) {
		if len(answer) > 0 && !strings.Contains(answer, "over TLS only") && answer[0] != 21 { // 21: an alert of TLS
			t.Errorf("word %d is answered with %q", i, answer)
		}
		if strings.Contains(answer, own.ClusterID) {
			t.Errorf("word %d is told of the cluster: %q", i, answer)
		}
	}
	c.awaitHealthy(t)
	var topic struct{ Paused bool }
	a := victim.client.do("GET", "/v1/topics/kept", "")
	if err := json.Unmarshal([]byte(a.body), &topic); err != nil || topic.Paused {
		t.Errorf("the topic: %d %s", a.status, a.body)
	}
	if n := len(c.view(t).Nodes); n != 3 {
		t.Errorf("%d nodes", n)
	}
}

// TestUnprovenWordsEndNobody: in a cluster without a key, a stranger that claims to be a newer
// start of the node does not make the node exit.
func TestUnprovenWordsEndNobody(t *testing.T) {
	t.Parallel()
	needCluster(t)
	c := &cluster{keyless: true, members: loopbackMembers(t, 1)}
	m := c.members[0]
	c.start(t, m, "--shards", fmt.Sprint(clusterShards))
	c.awaitHealthy(t)
	own := identityOf(t, m.dir)
	harangue(t, m.peer, own.ClusterID, m.name, own.NodeID)
	c.awaitHealthy(t)
	if !m.alive() {
		t.Fatalf("it ended: %s", m.process().stderr)
	}
	for _, want := range []string{"nodes do not authenticate each other", "speaks under this node's identity"} {
		if text := m.process().stderr.String(); strings.Count(text, want) != 1 {
			t.Errorf("the log says %d times %q:\n%s", strings.Count(text, want), want, text)
		}
	}
}

// hangUp sends SIGHUP to a node and waits until it has read its files again.
func hangUp(t testing.TB, p *process) {
	t.Helper()
	const said = "read the auth file, keys and certificates again"
	before := strings.Count(p.stderr.String(), said)
	p.signal(t, syscall.SIGHUP)
	poll(t, patience, "the keys are read", func() bool { return strings.Count(p.stderr.String(), said) > before })
}

// TestClusterKeyIsChangedWhileItRuns rotates the key: the new key is added after the old one, then
// moved before it, then the old one is removed, with a SIGHUP each time. A node that has only the
// new key then joins.
func TestClusterKeyIsChangedWhileItRuns(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2)
	kept := c.keepTimers(t, "kept", 0, 10)
	was, next := strings.Repeat("5a", 32), strings.Repeat("a5", 32)
	for _, lines := range []string{was + "\n" + next, next + "\n" + was, next} {
		writeFile(t, c.key, lines+"\n")
		for _, m := range c.running() {
			hangUp(t, m.process())
		}
		c.awaitHealthy(t)
	}
	c.join(t, loopbackMembers(t, 3)[2]) // the third, for its unused name
	c.checkKept(t, "kept", kept)
}
