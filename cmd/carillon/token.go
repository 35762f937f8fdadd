package main

import (
	"fmt"

	"carillon/transport/api"
)

type tokenCmd struct {
	Name string `default:"new" placeholder:"NAME" help:"Who is to hold it (${default})."`
}

func (*tokenCmd) Examples() string {
	return `carillon token --name shop`
}

// Run prints the token and its line for the auth file on stdout, where a script reads them; the advice is beside it.
func (c *tokenCmd) Run(term *terminal) error {
	token, line := api.NewToken(c.Name)
	if _, err := fmt.Fprintf(term.out, "%s\n%s\n", token, line); err != nil {
		return fmt.Errorf("print the token: %w", err)
	}
	fmt.Fprintln(term.err, "carillon: the first line is the token, which nothing shows again; the second is for the auth file (narrow its scopes and topics there)")
	return nil
}
