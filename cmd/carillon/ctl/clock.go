package ctl

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

// moveLimit is more than a node takes for one move of its clock.
const moveLimit = 70 * time.Second

type clockCmd struct {
	Advance string `xor:"move" placeholder:"720h" help:"Let this much time pass."`
	To      string `xor:"move" placeholder:"TIME" help:"Let time pass until then (RFC 3339)."`
}

func (c *clockCmd) Run(ctl *Command, term *terminal.Terminal) error {
	if strings.HasPrefix(c.Advance, "-") {
		return terminal.Usagef("--advance: the clock never goes back: for an earlier time start a node with another --data")
	}
	r := client.Request{Method: http.MethodGet, Path: client.Path("clock")}
	o := &object{}
	o.text("advance", c.Advance)
	o.text("to", c.To)
	if o.empty() {
		return ctl.show(term, r, reading(func(a *client.ClockMoved) error {
			_, err := fmt.Fprintln(term.Out, instant(a.Now))
			return err
		}))
	}
	r.Method, r.Body = http.MethodPost, o.bytes()
	ctl.Timeout = max(ctl.Timeout, moveLimit)
	return ctl.show(term, r, reading(func(a *client.ClockMoved) error {
		more := ""
		if a.Stopped {
			more = "; stopped there: the same again goes on"
		}
		_, err := fmt.Fprintf(term.Out, "%s: %s, %d left%s\n", instant(a.Now), terminal.Many(int64(a.Calls), "call", "calls"), a.Left, more)
		return err
	}))
}
