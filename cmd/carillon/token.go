package main

import (
	"fmt"
	"strings"

	"carillon/cmd/carillon/terminal"
	"carillon/transport/api"
	"carillon/transport/api/web"
	"carillon/transport/callback/signing"
)

type tokenCmd struct {
	Webhook   bool     `help:"Make a secret that signs a topic's callbacks instead: whsec_…, for its policy's secrets and for its receivers."`
	Ed25519   bool     `name:"ed25519" help:"With --webhook: a pair of keys instead, the private whsk_… for the topic's signing_keys, then the public whpk_… for its receivers."`
	Name      string   `default:"new" placeholder:"NAME" help:"Who is to hold it (${default})."`
	Scopes    []string `placeholder:"SCOPE" help:"What it may do, any of: ${scopes}. Adds make topics with topics alone. admin is over its topics, cluster over nodes and all topics."`
	Topics    []string `default:"*" placeholder:"PATTERN" help:"Topics that it reaches, a star for any characters (all)."`
	MaxTopics int      `placeholder:"N" help:"How many topics its adds may make (10000)."`
}

// Validate is called by the parser.
func (c *tokenCmd) Validate() error {
	if c.Webhook {
		if len(c.Scopes) > 0 || c.MaxTopics != 0 {
			return terminal.Usagef("--webhook: a secret for signatures has no scopes and no topics")
		}
		return nil
	}
	if c.Ed25519 {
		return terminal.Usagef("--ed25519: goes with --webhook")
	}
	if len(c.Scopes) == 0 {
		return terminal.Usagef("--scopes: needs what the token may do, any of %s", strings.Join(web.Scopes, ", "))
	}
	return nil
}

// Run prints the token and its line for the auth file on stdout, where a script reads them; the
// advice goes to stderr.
func (c *tokenCmd) Run(term *terminal.Terminal) error {
	if c.Webhook && c.Ed25519 {
		private, public := signing.NewKey()
		if _, err := fmt.Fprintf(term.Out, "%s\n%s\n", private, public); err != nil {
			return fmt.Errorf("print the keys: %w", err)
		}
		fmt.Fprintln(term.Err, "carillon: the first line is the private key, for the topic alone (its policy's signing_keys, or carillon ctl topics rotate --secret), which shows it to nobody; the second is for the receivers")
		return nil
	}
	if c.Webhook {
		if _, err := fmt.Fprintln(term.Out, signing.NewSecret()); err != nil {
			return fmt.Errorf("print the secret: %w", err)
		}
		fmt.Fprintln(term.Err, "carillon: give it to the topic (its policy's secrets, or carillon ctl topics rotate) and to the receivers; a node shows only its fingerprint")
		return nil
	}
	token, line, err := api.NewToken(api.TokenRule{Name: c.Name, Scopes: c.Scopes, Topics: c.Topics, MaxTopics: c.MaxTopics})
	if err != nil {
		return terminal.Usagef("%v", err)
	}
	if _, err := fmt.Fprintf(term.Out, "%s\n%s\n", token, line); err != nil {
		return fmt.Errorf("print the token: %w", err)
	}
	fmt.Fprintln(term.Err, "carillon: the first line is the token, which nothing shows again; the second is for the auth file of every node")
	return nil
}
