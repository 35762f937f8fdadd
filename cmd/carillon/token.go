package main

import (
	"fmt"
	"strings"

	"carillon/transport/api"
)

type tokenCmd struct {
	Name      string   `default:"new" placeholder:"NAME" help:"Who is to hold it (${default})."`
	Scopes    []string `placeholder:"SCOPE" help:"What it may do, any of: ${scopes}. Adds make topics with topics alone."`
	Topics    []string `default:"*" placeholder:"PATTERN" help:"Topics that it reaches, a star for any characters (all)."`
	MaxTopics int      `placeholder:"N" help:"How many topics its adds may make (10000)."`
}

func (*tokenCmd) Examples() string {
	return `carillon token --name shop --scopes add,cancel,read,topics --topics 'orders,orders.*'
carillon token --name prometheus --scopes read
carillon token --name operator --scopes add,cancel,read,topics,admin`
}

// Validate is called by the parser.
func (c *tokenCmd) Validate() error {
	if len(c.Scopes) == 0 {
		return usagef("--scopes: say what the token may do, any of %s", strings.Join(api.Scopes, ", "))
	}
	return nil
}

// Run prints the token and its line for the auth file on stdout, where a script reads them; the advice is beside it.
func (c *tokenCmd) Run(term *terminal) error {
	token, line, err := api.NewToken(api.TokenRule{Name: c.Name, Scopes: c.Scopes, Topics: c.Topics, MaxTopics: c.MaxTopics})
	if err != nil {
		return usagef("%v", err)
	}
	if _, err := fmt.Fprintf(term.out, "%s\n%s\n", token, line); err != nil {
		return fmt.Errorf("print the token: %w", err)
	}
	fmt.Fprintln(term.err, "carillon: the first line is the token, which nothing shows again; the second is for the auth file of every node")
	return nil
}
