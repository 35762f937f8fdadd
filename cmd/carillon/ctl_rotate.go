package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"carillon/client"
)

type topicRotateCmd struct {
	topicRef
	Secret string        `placeholder:"whsec_…" help:"The new secret, @file, or - for stdin; else one is made and printed."`
	Keep   time.Duration `placeholder:"1h" help:"Wait this long, then finish."`
	Finish bool          `help:"Drop all secrets but the newest."`
	Only   string        `placeholder:"sha256:…" help:"With --finish: keep the one with this fingerprint instead."`
}

// Help is what kong shows behind the one line that says what the command does.
func (*topicRotateCmd) Help() string {
	return "The new secret is added, and from then on it and those before sign every call: a receiver that knows any of them takes it. " +
		"Give the new one to the receivers, then drop the others with --finish."
}

func (*topicRotateCmd) Examples() string {
	return `carillon ctl topics rotate orders              prints the new secret; old and new sign
carillon ctl topics rotate orders --finish     when all receivers have it
carillon ctl topics rotate orders --secret @new.txt --keep 1h`
}

func (r *topicRotateCmd) Run(ctl *ctlCmd, term *terminal) error {
	switch {
	case r.Finish && (r.Secret != "" || r.Keep != 0):
		return usagef("--finish: drops secrets; --secret and --keep go with a new one")
	case r.Only != "" && !r.Finish:
		return usagef("--only goes with --finish")
	case r.Keep < 0:
		return usagef("--keep: must not be negative")
	case r.Finish:
		return r.finish(ctl, term, r.Only)
	}
	secret, made := client.NewSecret(), true
	if r.Secret != "" {
		text, err := readValue(r.Secret, term.in)
		if err != nil {
			return fmt.Errorf("--secret: %w", err)
		}
		secret, made = strings.TrimSpace(string(text)), false
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
	if len(s.Fingerprints) == 1 {
		_, err := fmt.Fprintln(term.err, "carillon: it is the first: calls are signed from now on")
		return err
	}
	if r.Keep == 0 {
		fmt.Fprintf(term.err, "carillon: %d secrets sign now; when all receivers have the new one: carillon ctl topics rotate %s --finish\n", len(s.Fingerprints), printable(r.Topic))
		return nil
	}
	return r.finishLater(ctl, term, s)
}

// finishLater waits, and drops all secrets but the new one.
func (r *topicRotateCmd) finishLater(ctl *ctlCmd, term *terminal, s *client.Secrets) error {
	ctx, release := untilSignal(term)
	defer release()
	fmt.Fprintf(term.err, "carillon: %d secrets sign now; the new one alone in %s\n", len(s.Fingerprints), r.Keep)
	wait := time.NewTimer(r.Keep)
	defer wait.Stop()
	select {
	case <-wait.C:
		return r.finish(ctl, term, s.Fingerprints[0])
	case <-ctx.Done():
		return fmt.Errorf("the secrets before still sign: carillon ctl topics rotate %s --finish drops them", r.Topic)
	}
}

func (r *topicRotateCmd) finish(ctl *ctlCmd, term *terminal, keep string) error {
	s, err := within(ctl, true, func(ctx context.Context) (*client.Secrets, error) {
		return ctl.client.FinishRotation(ctx, r.Topic, keep)
	})
	if err != nil {
		return err
	}
	return ctl.showSecrets(term, s)
}

// showSecrets prints the new secret, if there is one to be shown, and the fingerprints of all.
func (c *ctlCmd) showSecrets(term *terminal, s *client.Secrets) error {
	if c.JSON {
		o := &object{}
		o.set("topic", s.Topic)
		o.text("secret", s.Made)
		o.set("secrets", s.Fingerprints)
		return printJSON(term.out, o.bytes())
	}
	if s.Made != "" {
		if _, err := fmt.Fprintln(term.out, s.Made); err != nil {
			return err
		}
	}
	for _, f := range s.Fingerprints {
		if _, err := fmt.Fprintln(term.out, printable(f)); err != nil {
			return err
		}
	}
	return nil
}
