package ctl

import (
	"cmp"
	"fmt"
	"net/http"
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

func (r *topicRotateCmd) Run(ctl *Command, term *terminal.Terminal) error {
	switch {
	case r.Finish && (r.Secret != "" || r.Keep != 0):
		return terminal.Usagef("--finish: drops secrets; --secret and --keep go with a new one")
	case r.Only != "" && !r.Finish:
		return terminal.Usagef("--only goes with --finish")
	case r.Keep < 0:
		return terminal.Usagef("--keep: must not be negative")
	}
	list, secret, made := secretList, "", ""
	if r.Secret != "" {
		text, err := readValue(r.Secret, term.In)
		if err != nil {
			return fmt.Errorf("--secret: %w", err)
		}
		secret = strings.TrimSpace(string(text))
	}
	if r.Ed25519 || strings.HasPrefix(secret, "whsk_") || strings.HasPrefix(r.Only, "whpk_") {
		list = keyList
	} else if r.Secret == "" && !r.Finish {
		made = client.NewSecret()
		secret = made
	}
	if r.Finish {
		return r.finish(ctl, term, list, r.Only)
	}
	names, byNode, err := r.change(ctl, list, "rotate", list.one, secret)
	if err != nil {
		return err
	}
	if err := ctl.showSigners(term, r.Topic, list, names, cmp.Or(made, byNode)); err != nil {
		return err
	}
	return r.next(ctl, term, list, names)
}

// signerList is one of the two lists of a topic by which its calls are signed.
type signerList struct{ path, one, member, what, flag string }

var (
	secretList = signerList{"secrets", "secret", "secrets", "secrets", ""}
	keyList    = signerList{"signing-keys", "signing_key", "signing_keys", "keys", " --ed25519"}
)

// change changes a list, and returns the names that it has then, the newest first, and the secret
// that the node has made, if it has.
func (r *topicRotateCmd) change(ctl *Command, list signerList, verb, member, value string) (names []string, made string, err error) {
	o := &object{}
	o.text(member, value)
	answer, err := answerOf[fields](ctl.do(client.Request{Method: http.MethodPost, Path: client.Path("topics", r.Topic, list.path, verb), Body: o.bytes()}))
	if err != nil {
		return nil, "", err
	}
	if text := (*answer)[list.one]; text != nil {
		err = readAnswer(text, &made)
	}
	if err == nil {
		err = readAnswer((*answer)[list.member], &names)
	}
	return names, made, err
}

func (r *topicRotateCmd) finish(ctl *Command, term *terminal.Terminal, list signerList, keep string) error {
	names, _, err := r.change(ctl, list, "finish", "keep", keep)
	if err != nil {
		return err
	}
	return ctl.showSigners(term, r.Topic, list, names, "")
}

// next names the step after a rotation has begun, and waits for it where that was asked for.
func (r *topicRotateCmd) next(ctl *Command, term *terminal.Terminal, list signerList, names []string) error {
	n, what := len(names), list.what
	if n == 1 {
		_, err := fmt.Fprintln(term.Err, "carillon: it is the first: calls are signed from now on")
		return err
	}
	if r.Keep == 0 {
		fmt.Fprintf(term.Err, "carillon: %d %s sign now; when all receivers have the new one: carillon ctl topics rotate %s%s --finish\n", n, what, printable(r.Topic), list.flag)
		return nil
	}
	ctx, release := terminal.UntilSignal(term)
	defer release()
	fmt.Fprintf(term.Err, "carillon: %d %s sign now; the new one alone in %s\n", n, what, r.Keep)
	wait := time.NewTimer(r.Keep)
	defer wait.Stop()
	select {
	case <-wait.C:
		return r.finish(ctl, term, list, names[0])
	case <-ctx.Done():
		return fmt.Errorf("the %s before still sign: carillon ctl topics rotate %s%s --finish drops them", what, r.Topic, list.flag)
	}
}

// showSigners prints the new secret, if there is one to be shown, and the names of all signers.
func (c *Command) showSigners(term *terminal.Terminal, topic string, list signerList, names []string, made string) error {
	if c.JSON {
		o := &object{}
		o.set("topic", topic)
		o.text("secret", made)
		o.set(list.member, names)
		return printJSON(term.Out, o.bytes())
	}
	if made != "" {
		names = append([]string{made}, names...)
	}
	for _, name := range names {
		if _, err := fmt.Fprintln(term.Out, printable(name)); err != nil {
			return err
		}
	}
	return nil
}
