package node

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"carillon/internal/secret"
	"carillon/node/route"
	"carillon/ring"
	"carillon/timer"
)

// Secrets are sealed by the node that takes a request, before it proposes or passes anything on,
// and opened by the one that makes a call. In between (log, snapshots, history, other nodes) there
// are envelopes; see package secret.

// vault has this node's keys, and notices which it lacks.
type vault struct {
	keys   atomic.Pointer[secret.Keys] // nil: none
	own    atomic.Pointer[openedSecret]
	lacked atomic.Pointer[lackedKey]
}

// openedSecret is the cluster's secret as it was kept, and opened.
type openedSecret struct {
	kept, plain []byte
	digest      *secret.Digest
}

// lackedKey is a key that a timer's call needed.
type lackedKey struct {
	id string
	at time.Duration // on the node's monotonic clock
}

// lackedFor is how long one call without its key counts: as long as the timer is due it is asked
// for each second.
const lackedFor = 5 * time.Second

// readSecretsKeys reads the keys for secrets at rest; nil without a file.
func (c Credentials) readSecretsKeys() (keys *secret.Keys, shared bool, err error) {
	if c.SecretsKeyFile == "" {
		return nil, false, nil
	}
	file, err := readKeyFile(secretsKeySetting, c.SecretsKeyFile, secret.KeyBytes)
	if err != nil {
		return nil, false, err
	}
	if keys, err = secret.New(file.keys); err == nil {
		keys, err = keys.GiveUp(file.lost)
	}
	if err != nil {
		return nil, false, fmt.Errorf("%s: %s: %w", secretsKeySetting, c.SecretsKeyFile, err)
	}
	return keys, file.shared, nil
}

// openVault takes the keys at the start.
func (p *process) openVault() error {
	keys, shared, err := p.cfg.readSecretsKeys()
	if err != nil {
		return err
	}
	p.warnShared(p.cfg.SecretsKeyFile, shared)
	p.vault.keys.Store(keys)
	return nil
}

// lacks reports whether this node does not have a key, and records that it was needed, unless no
// copy of it is left.
func (v *vault) lacks(now time.Duration, id string) bool {
	keys := v.keys.Load()
	if keys.Has(id) {
		return false
	}
	if !keys.Lost(id) {
		v.lacked.Store(&lackedKey{id, now})
	}
	return true
}

// lacksKey names the key that this node needs and does not have; "": none. Without that key it
// should not lead: calls would wait for it.
func (c *core) lacksKey() string {
	v := &c.p.vault
	keys := v.keys.Load()
	if err := c.member.State.Lacks(keys); err != nil {
		return err.Error()
	}
	if last := v.lacked.Load(); last != nil && c.p.clock.Mono()-last.at < lackedFor && !keys.Has(last.id) && !keys.Lost(last.id) {
		return (&secret.KeyError{ID: last.id}).Error()
	}
	return ""
}

// mostLocked bounds how many topics are named whose calls wait for a key.
const mostLocked = 100

// lacksKey is core.lacksKey, once there is a core.
func (p *process) lacksKey() string {
	if c := p.core.Load(); c != nil {
		return c.lacksKey()
	}
	return ""
}

// seals reports whether the cluster keeps secrets sealed: since a node with keys has led the meta
// group.
func (c *core) seals() bool {
	kept := c.member.State.Secret()
	return kept != nil && len(kept) != ring.SecretBytes
}

// sealingKeys are those to seal with; nil: secrets stay in the clear. A node whose keys do not open
// the cluster's secrets has none: no other node might open the secrets that it sealed.
func (c *core) sealingKeys() (*secret.Keys, error) {
	keys := c.p.vault.keys.Load()
	if c.seals() && !keys.Has(secret.KeyOf(string(c.member.State.Secret()))) {
		return nil, secret.ErrNoKeys
	}
	return keys, nil
}

// clusterSecret is the cluster's secret, opened; nil as long as there is none, or this node lacks
// the key to it.
func (c *core) clusterSecret() []byte {
	o := c.openedSecret()
	if o == nil {
		return nil
	}
	return o.plain
}

func (c *core) openedSecret() *openedSecret {
	kept := c.member.State.Secret()
	if kept == nil {
		return nil
	}
	v := &c.p.vault
	if o := v.own.Load(); o != nil && len(o.kept) == len(kept) && &o.kept[0] == &kept[0] {
		return o
	}
	plain, err := ring.OpenSecret(kept, v.keys.Load())
	if err != nil {
		return nil
	}
	o := &openedSecret{kept, plain, secret.NewDigest(plain)}
	v.own.Store(o)
	return o
}

// digest stands for a secret where contents are compared: see api.Config.
func (e *engine) digest(text string) (uint64, error) {
	c, err := e.core()
	if err != nil {
		return 0, err
	}
	if o := c.openedSecret(); o != nil {
		return o.digest.Sum(text), nil
	}
	if c.seals() {
		return 0, secret.ErrNoKeys
	}
	return 0, timer.ErrRecovering
}

// callbackHeaders are the headers that a command sets; nil: none.
func callbackHeaders(cmd *timer.Command) []timer.Header {
	switch {
	case cmd.Spec != nil:
		return cmd.Spec.Callback.Headers
	case cmd.Patch != nil && cmd.Patch.Headers:
		return cmd.Patch.Spec.Callback.Headers
	}
	return nil
}

func hidden(h timer.Header) bool { return secret.Named(h.Name) || secret.Sealed(h.Value) }

// sealed gives a command whose secrets are sealed. The one that came stays as it is: it may be
// asked again for another life of its topic, to which other envelopes belong.
func (c *core) sealed(cmd *timer.Command) (*timer.Command, error) {
	headers := callbackHeaders(cmd)
	if !slices.ContainsFunc(headers, hidden) {
		return cmd, nil
	}
	keys, err := c.sealingKeys()
	if err != nil || keys == nil {
		return cmd, err
	}
	headers = slices.Clone(headers)
	for i := range headers {
		if h := &headers[i]; hidden(*h) {
			at := secret.OfTimer(uint32(cmd.Topic), h.Name)
			h.Value = keys.Renew(at, keys.Seal(at, h.Value))
		}
	}
	out := *cmd
	if cmd.Spec != nil {
		spec := *cmd.Spec
		spec.Callback.Headers = headers
		out.Spec = &spec
	} else {
		patch := *cmd.Patch
		patch.Spec.Callback.Headers = headers
		out.Patch = &patch
	}
	return &out, nil
}

// doSealed has many commands decided, sealed; it fills in the answers of those that came.
func (c *core) doSealed(ctx context.Context, ops []timer.Op) {
	if !slices.ContainsFunc(ops, func(o timer.Op) bool { return slices.ContainsFunc(callbackHeaders(o.Command), hidden) }) {
		c.router.DoAll(ctx, ops)
		return
	}
	run, from := make([]timer.Op, 0, len(ops)), make([]int, 0, len(ops))
	for i := range ops {
		cmd, err := c.sealed(ops[i].Command)
		if err != nil {
			ops[i].Err = err
			continue
		}
		next := ops[i]
		next.Command = cmd
		run, from = append(run, next), append(from, i)
	}
	c.router.DoAll(ctx, run)
	for i := range run {
		run[i].Command = ops[from[i]].Command
		ops[from[i]] = run[i]
	}
}

func (c *core) sealedPolicy(topic string, p *timer.Policy) (*timer.Policy, error) {
	if ring.WithoutSecrets(p) == p {
		return p, nil
	}
	keys, err := c.sealingKeys()
	if err != nil {
		return nil, err
	}
	return ring.SealPolicy(keys, topic, p), nil
}

// sealedTimers seals the secrets of commands.
type sealedTimers struct {
	*route.Router
	core *core
}

// Do implements backend.Timers.
func (s sealedTimers) Do(ctx context.Context, id timer.ShardID, cmd *timer.Command, brief bool) (timer.Result, error) {
	cmd, err := s.core.sealed(cmd)
	if err != nil {
		return timer.Result{}, err
	}
	return s.Router.Do(ctx, id, cmd, brief)
}

func (s sealedTimers) DoAll(ctx context.Context, ops []timer.Op) { s.core.doSealed(ctx, ops) }

// sealedTopics seals the secrets of policies.
type sealedTopics struct {
	*route.Topics
	core *core
}

// Put implements backend.Topics.
func (s sealedTopics) Put(ctx context.Context, name string, p *timer.Policy, change timer.TopicChange) (*timer.Topic, bool, error) {
	p, err := s.core.sealedPolicy(name, p)
	if err != nil {
		return nil, false, err
	}
	return s.Topics.Put(ctx, name, p, change)
}
