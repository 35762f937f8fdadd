package ctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

type topicRotateCmd struct {
	topicRef
	Secret  string        `placeholder:"whsec_…" help:"The new secret, or the private key whsk_…; @file, or - for stdin; else one is made."`
	Ed25519 bool          `name:"ed25519" help:"The topic's signing keys instead: the node makes the new one, and its public key is printed."`
	Keep    time.Duration `placeholder:"1h" help:"Wait this long, then finish."`
	Finish  bool          `help:"Drop all secrets but the newest."`
	Only    string        `placeholder:"sha256:…" help:"With --finish: keep the one with this fingerprint, or this public key, instead."`
}

// Help is the text that kong shows behind the one line that describes the command.
func (*topicRotateCmd) Help() string {
	return "The new secret is added, and from then on it and those before sign every call: a receiver that knows any of them takes it. " +
		"Give the new one to the receivers, then drop the others with --finish."
}

func (*topicRotateCmd) Examples() string {
	return `carillon ctl topics rotate orders              prints the new secret; old and new sign
carillon ctl topics rotate orders --finish     when all receivers have it
carillon ctl topics rotate orders --secret @new.txt --keep 1h
carillon ctl topics rotate orders --ed25519    prints the public keys, the new one first`
}

func (r *topicRotateCmd) Run(ctl *Command, term *terminal.Terminal) error {
	switch {
	case r.Finish && (r.Secret != "" || r.Keep != 0):
		return terminal.Usagef("--finish: drops secrets; --secret and --keep go with a new one")
	case r.Only != "" && !r.Finish:
		return terminal.Usagef("--only goes with --finish")
	case r.Keep < 0:
		return terminal.Usagef("--keep: must not be negative")
	case r.Finish && (r.Ed25519 || strings.HasPrefix(r.Only, "whpk_")):
		return r.finishKeys(ctl, term, r.Only)
	case r.Finish:
		return r.finish(ctl, term, r.Only)
	}
	secret, made := "", true
	if r.Secret != "" {
		text, err := readValue(r.Secret, term.In)
		if err != nil {
			return fmt.Errorf("--secret: %w", err)
		}
		secret, made = strings.TrimSpace(string(text)), false
	}
	switch {
	case r.Ed25519 || strings.HasPrefix(secret, "whsk_"):
		return r.rotateKey(ctl, term, secret)
	case made:
		secret = client.NewSecret()
	}
	s, err := within(ctl, true, func(ctx context.Context) (*client.Secrets, error) {
		return ctl.client.RotateSecret(ctx, r.Topic, secret)
	})
	if err != nil {
		return err
	}
	if made {
		s.Made = secret
	}
	if err := ctl.showSecrets(term, s); err != nil {
		return err
	}
	return r.next(term, len(s.Fingerprints), "secrets", "", func() error { return r.finish(ctl, term, s.Fingerprints[0]) })
}

// rotateKey is Run for signing keys.
func (r *topicRotateCmd) rotateKey(ctl *Command, term *terminal.Terminal, private string) error {
	k, err := within(ctl, true, func(ctx context.Context) (*client.PublicKeys, error) {
		return ctl.client.RotateSigningKey(ctx, r.Topic, private)
	})
	if err != nil {
		return err
	}
	if err := ctl.showKeys(term, k); err != nil {
		return err
	}
	return r.next(term, len(k.Keys), "keys", " --ed25519", func() error { return r.finishKeys(ctl, term, k.Keys[0]) })
}

// next names the step after a rotation has begun, and waits for it where that was asked for.
func (r *topicRotateCmd) next(term *terminal.Terminal, n int, what, flag string, finish func() error) error {
	if n == 1 {
		_, err := fmt.Fprintln(term.Err, "carillon: it is the first: calls are signed from now on")
		return err
	}
	if r.Keep == 0 {
		fmt.Fprintf(term.Err, "carillon: %d %s sign now; when all receivers have the new one: carillon ctl topics rotate %s%s --finish\n", n, what, printable(r.Topic), flag)
		return nil
	}
	ctx, release := terminal.UntilSignal(term)
	defer release()
	fmt.Fprintf(term.Err, "carillon: %d %s sign now; the new one alone in %s\n", n, what, r.Keep)
	wait := time.NewTimer(r.Keep)
	defer wait.Stop()
	select {
	case <-wait.C:
		return finish()
	case <-ctx.Done():
		return fmt.Errorf("the %s before still sign: carillon ctl topics rotate %s%s --finish drops them", what, r.Topic, flag)
	}
}

func (r *topicRotateCmd) finishKeys(ctl *Command, term *terminal.Terminal, keep string) error {
	k, err := within(ctl, true, func(ctx context.Context) (*client.PublicKeys, error) {
		return ctl.client.FinishKeyRotation(ctx, r.Topic, keep)
	})
	if err != nil {
		return err
	}
	return ctl.showKeys(term, k)
}

func (r *topicRotateCmd) finish(ctl *Command, term *terminal.Terminal, keep string) error {
	s, err := within(ctl, true, func(ctx context.Context) (*client.Secrets, error) {
		return ctl.client.FinishRotation(ctx, r.Topic, keep)
	})
	if err != nil {
		return err
	}
	return ctl.showSecrets(term, s)
}

// showKeys prints the public keys, the newest first.
func (c *Command) showKeys(term *terminal.Terminal, k *client.PublicKeys) error {
	if c.JSON {
		o := &object{}
		o.set("topic", k.Topic)
		o.set("signing_keys", k.Keys)
		return printJSON(term.Out, o.bytes())
	}
	for _, key := range k.Keys {
		if _, err := fmt.Fprintln(term.Out, printable(key)); err != nil {
			return err
		}
	}
	return nil
}

// showSecrets prints the new secret, if there is one to be shown, and the fingerprints of all.
func (c *Command) showSecrets(term *terminal.Terminal, s *client.Secrets) error {
	if c.JSON {
		o := &object{}
		o.set("topic", s.Topic)
		o.text("secret", s.Made)
		o.set("secrets", s.Fingerprints)
		return printJSON(term.Out, o.bytes())
	}
	if s.Made != "" {
		if _, err := fmt.Fprintln(term.Out, s.Made); err != nil {
			return err
		}
	}
	for _, f := range s.Fingerprints {
		if _, err := fmt.Fprintln(term.Out, printable(f)); err != nil {
			return err
		}
	}
	return nil
}
