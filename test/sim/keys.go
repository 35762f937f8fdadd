package sim

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"carillon/internal/secret"
	"carillon/ring"
	"carillon/timer"
)

// keyOperator is the operator of secret keys. It gives the machines a key file, changes the file on
// one machine after another as docs/keys.md describes, and sets a topic's secrets now and then.
// One run in three has one; in half of these the cluster starts without a key. It draws from a
// stream of its own.
//
// Checks:
//
//   - on every replica a topic's secrets open to a value that was set, and never to an older one
//     than before;
//   - at the end all replicas have the last acknowledged value, and the cluster's own secret, sealed
//     by the last key;
//   - no call carries another value;
//   - the cluster's own secret always opens to the same bytes.
type keyOperator struct {
	w      *World
	chance chance
	on     bool

	stage int           // the current key file: see lettersAt
	files map[*node]int // the file on each machine
	made  map[int]*secret.Keys
	all   *secret.Keys // every key of the run

	word, taken int // the last value that was set, and the last that was acknowledged
	fence       int // the first value set after all machines had this stage's file
	asking      bool
	seen        map[*node]seenWord
	late        int // requests of the first policy that may still be on their way, see laid
	// when the first policy was decided, as seen in time and after a later one
	firstMs, lateMs map[int64]bool
	own             []byte // the cluster's secret, as first seen
}

type seenWord struct {
	life uint64
	word int
}

const secretTopic = timer.TopicID(1)

// noKeys is the stage before the first file.
const noKeys = -1

func (w *World) drawKeys() *keyOperator {
	c := newChance(w.cfg.Seed, 11)
	k := &keyOperator{w: w, chance: c, on: c.IntN(3) == 0, files: map[*node]int{}, made: map[int]*secret.Keys{}, seen: map[*node]seenWord{}, firstMs: map[int64]bool{}, lateMs: map[int64]bool{}}
	k.stage = -c.IntN(2) // noKeys or the first key
	var every [][]byte
	for i := range 26 {
		every = append(every, bytes.Repeat([]byte{byte('a' + i)}, secret.KeyBytes))
	}
	k.all, _ = secret.New(every) // distinct keys of the right length
	return k
}

// lettersAt names the keys of a file. A rotation has three stages: the old key; the new key behind
// it; the new key in front. The next stage is the new key alone, which starts the next rotation.
func lettersAt(stage int) string {
	if stage == noKeys {
		return ""
	}
	old, next := string(rune('a'+stage/3)), string(rune('a'+stage/3+1))
	return [...]string{old, old + next, next + old}[stage%3]
}

// of returns the keys in a machine's file; nil in runs without an operator.
func (k *keyOperator) of(n *node) *secret.Keys {
	if !k.on {
		return nil
	}
	stage, known := k.files[n]
	if !known { // a new machine gets the current file
		stage = k.stage
		k.files[n] = stage
	}
	if stage == noKeys {
		return nil
	}
	if k.made[stage] == nil {
		var list [][]byte
		for _, letter := range []byte(lettersAt(stage)) {
			list = append(list, bytes.Repeat([]byte{letter}, secret.KeyBytes))
		}
		k.made[stage], _ = secret.New(list)
	}
	return k.made[stage]
}

// lackedBy says which key a machine's process lacks; empty: none.
func (k *keyOperator) lackedBy(n *node) string {
	if !k.on {
		return ""
	}
	if err := n.state.Lacks(k.of(n)); err != nil {
		return err.Error()
	}
	return ""
}

// secretsOf are a topic's secrets for a value number.
func secretsOf(word int) (header, signing string) {
	header = fmt.Sprintf("Bearer %012d", word)
	return header, "whsec_" + base64.StdEncoding.EncodeToString([]byte(header+"....."))
}

// shape gives the topic its first secrets, before any node can seal them.
func (k *keyOperator) shape(id timer.TopicID, p *timer.Policy) {
	if k.on && id == secretTopic {
		header, signing := secretsOf(0)
		p.Callback.Headers, p.Callback.HasHeaders, p.Secrets = []timer.Header{{Name: "Authorization", Value: header}}, true, []string{signing}
	}
}

// laid is told how often a topic's first policy was requested. Of several requests one may still be
// on its way, at a machine that stands still, and take effect later.
func (k *keyOperator) laid(id timer.TopicID, requests int) {
	if id == secretTopic {
		k.late = requests - 1
	}
}

// isLate reports whether the first policy, decided at that time, may replace a later one. Each
// request does so once, with a time of its own: a state that goes back has the old one.
func (k *keyOperator) isLate(decidedMs int64) bool {
	if !k.firstMs[decidedMs] {
		k.lateMs[decidedMs] = true
	}
	return k.lateMs[decidedMs] && len(k.lateMs) <= k.late
}

func (k *keyOperator) begin() {
	if k.on {
		k.w.after(0, k.operate)
		k.w.after(0, k.look)
	}
}

// operate performs the operator's next step, about once a second.
func (k *keyOperator) operate() {
	if k.w.calm {
		return
	}
	k.w.after(k.chance.between(100*time.Millisecond, 2*time.Second), k.operate)
	if k.chance.IntN(3) == 0 {
		k.give()
		return
	}
	var behind []*node
	for _, n := range k.w.nodes {
		if k.of(n); !n.gone && k.files[n] != k.stage {
			behind = append(behind, n)
		}
	}
	switch {
	case len(behind) > 0:
		n := behind[k.chance.IntN(len(behind))]
		k.files[n] = k.stage
		k.w.note(n, "keys", uint64(k.stage+1), 0, lettersAt(k.stage))
	case k.fence == 0:
		k.fence = k.word + 1
	case k.stage%3 == 2 && k.needed(lettersAt(k.stage)[1]):
	case k.stage < 3*24:
		k.stage++
		k.fence = 0
		if k.stage%3 == 2 {
			k.w.counts.Rotations++
		}
	}
}

// needed reports whether a value may still be sealed by a key: a topic's, or the cluster's own
// secret. It is false only if every machine in use runs and knows of none, as the metrics show it.
// A request sealed by that key, by a node or by a former meta leader, may still be on its way. A
// real operator waits for minutes; here a value set later must be known everywhere, after which
// nothing older can arrive.
func (k *keyOperator) needed(letter byte) bool {
	one, _ := secret.New([][]byte{bytes.Repeat([]byte{letter}, secret.KeyBytes)})
	for _, n := range k.w.nodes {
		if n.gone {
			continue
		}
		if n.state == nil || n.host == nil {
			return true
		}
		t, ok := n.state.Topic(secretTopic)
		if !ok || n.state.SealedBy()[one.First()] > 0 || n.state.SecretSealedBy() == one.First() || k.wordIn(n, t, k.all) != k.word {
			return true
		}
	}
	return k.taken != k.word || k.word < k.fence
}

// give sets the topic's secrets to a new value, sealed by the machine that takes the request.
func (k *keyOperator) give() {
	leader := k.w.metaLeader()
	if leader == nil || k.asking {
		return
	}
	t, ok := leader.state.Topic(secretTopic)
	if !ok {
		return
	}
	at := k.w.inUse(k.chance)
	k.word++
	word := k.word
	header, signing := secretsOf(word)
	p := t.Policy
	p.Callback.Headers, p.Secrets = []timer.Header{{Name: "Authorization", Value: header}}, []string{signing}
	p.CloudEvents = word%2 == 1
	p.SigningKeys = []timer.SigningKey{{Private: "whsk_" + signing, Public: "whpk_" + header}}
	c := ring.Command{Verb: ring.Put, Name: t.Name, ID: t.ID, Policy: ring.SealPolicy(k.of(at), t.Name, &p)}
	k.w.note(at, "secret", uint64(word), 0, "")
	k.asking = true
	k.w.operator(leader, func(ctx context.Context, n *node) error {
		r, err := n.host.Propose(c.Encode())
		if reply, ok := r.(ring.Reply); ok && err == nil {
			err = reply.Err
		}
		return err
	}, func(err error) {
		k.asking = false
		if err == nil {
			k.taken = max(k.taken, word)
		}
	})
	k.w.after(5*time.Second, func() { k.asking = false }) // there may be no answer
}

// locked reports whether a call of the topic needs a key that the machine lacks.
func (k *keyOperator) locked(n *node, t *timer.Topic) bool {
	if !k.on || t.ID != secretTopic {
		return false
	}
	for _, kept := range append(t.Policy.Secrets[:len(t.Policy.Secrets):len(t.Policy.Secrets)], t.Policy.Callback.Headers[0].Value) {
		if id := secret.KeyOf(kept); id != "" && !k.of(n).Has(id) {
			return true
		}
	}
	return false
}

// opens reports whether a call can be sent: its key may have gone since locked was asked.
func (k *keyOperator) opens(n *node, t *timer.Topic) bool {
	if !k.on || t.ID != secretTopic {
		return true
	}
	if k.locked(n, t) {
		return false
	}
	k.wordIn(n, t, k.of(n))
	return true
}

// wordIn opens a topic's secrets, which must both belong to one value that was set.
func (k *keyOperator) wordIn(n *node, t *timer.Topic, keys *secret.Keys) (word int) {
	header, err := keys.Open(secret.OfTopic(t.Name, "Authorization"), t.Policy.Callback.Headers[0].Value)
	if err != nil {
		k.w.violate("secrets", "node %d cannot open a header: %v", n.id, err)
	}
	signing, err := keys.Open(secret.Signing(t.Name), t.Policy.Secrets[0])
	if err != nil {
		k.w.violate("secrets", "node %d cannot open a signing secret: %v", n.id, err)
	}
	for _, key := range t.Policy.SigningKeys {
		if private, err := keys.Open(secret.Signing(t.Name), key.Private); err != nil || private != "whsk_"+signing || key.Public != "whpk_"+header {
			k.w.violate("secrets", "node %d has the public key %q, the private key %q (%v) and the secret %q, which do not belong together", n.id, key.Public, private, err, signing)
		}
	}
	if _, err := fmt.Sscanf(strings.TrimPrefix(header, "Bearer "), "%d", &word); err != nil {
		k.w.violate("secrets", "node %d opens the header %q, expected a numbered token", n.id, header)
	}
	if h, s := secretsOf(word); word > k.word || h != header || s != signing {
		k.w.violate("secrets", "node %d has the secrets %q and %q, expected those of one value up to number %d", n.id, header, signing, k.word)
	}
	return word
}

// look checks every machine's copy of the topic.
func (k *keyOperator) look() {
	k.w.after(250*time.Millisecond, k.look)
	for _, n := range k.w.nodes {
		if n.state == nil || n.host == nil {
			continue
		}
		k.lookAtOwn(n)
		t, ok := n.state.Topic(secretTopic)
		if !ok {
			continue
		}
		word, before := k.wordIn(n, t, k.all), k.seen[n]
		if before.life == n.life && word < before.word && (word > 0 || !k.isLate(t.UpdatedMs)) {
			k.w.violate("secrets", "node %d had value %d of the topic's secrets, and now has the older value %d", n.id, before.word, word)
		}
		if k.word == 0 { // no later one was requested yet
			k.firstMs[t.UpdatedMs] = true
		}
		k.seen[n] = seenWord{n.life, word}
	}
}

// lookAtOwn checks that a machine's copy of the cluster's own secret has not changed.
func (k *keyOperator) lookAtOwn(n *node) {
	kept := n.state.Secret()
	if kept == nil {
		return
	}
	plain, err := ring.OpenSecret(kept, k.all)
	if err != nil {
		k.w.violate("secrets", "node %d cannot open the cluster's secret: %v", n.id, err)
	}
	if k.own == nil {
		k.own = plain
	}
	if !bytes.Equal(plain, k.own) {
		k.w.violate("secrets", "node %d has a changed copy of the cluster's secret", n.id)
	}
}

// done gives every machine the last file, in the second phase.
func (k *keyOperator) done() {
	if k.on {
		k.stage = max(k.stage, 0)
		for _, n := range k.w.nodes {
			k.files[n] = k.stage
		}
	}
}

// prove waits until every running machine has the last acknowledged value, or a later one, sealed
// by the last key.
func (k *keyOperator) prove() {
	if !k.on {
		return
	}
	first := k.made[k.stage]
	if first == nil {
		first = k.of(k.w.nodes[0])
	}
	why := ""
	if !k.w.passUntil(healLimit, func() bool { why = k.unsealed(first.First()); return why == "" }) {
		k.w.violate("secrets", "ten seconds after the repair, %s", why)
	}
}

func (k *keyOperator) unsealed(first string) string {
	leader := k.w.metaLeader()
	if leader == nil {
		return "nobody leads the meta group"
	}
	for _, n := range k.w.nodes {
		if m, known := leader.state.Node(n.id); n.host == nil || n.gone || !known || m.State == ring.NodeRemoved {
			continue // a removed node may not know
		}
		t, ok := n.state.Topic(secretTopic)
		if by := n.state.SealedBy(); !ok || len(by) != 1 || by[first] != 2+len(t.Policy.SigningKeys) {
			return fmt.Sprintf("node %d has secrets sealed by %v, want %s", n.id, by, first)
		}
		if by := n.state.SecretSealedBy(); by != first {
			return fmt.Sprintf("node %d has the cluster's secret sealed by %q, want %s", n.id, by, first)
		}
		if word := k.wordIn(n, t, k.all); word < k.taken {
			return fmt.Sprintf("node %d has word %d, and %d was taken", n.id, word, k.taken)
		}
	}
	return ""
}
