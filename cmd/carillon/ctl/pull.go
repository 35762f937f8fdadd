package ctl

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

// workerCommands are those of a worker that takes timers from a pull topic.
type workerCommands struct {
	Pull   pullCmd   `cmd:"" help:"Fetch timers that are ready, from a pull topic."`
	Ack    ackCmd    `cmd:"" help:"Report pulled timers as done."`
	Nack   nackCmd   `cmd:"" help:"Report pulled timers as failed."`
	Extend extendCmd `cmd:"" help:"Extend the leases of pulled timers."`
}

type pullCmd struct {
	Topic string        `arg:"" help:"Topic; its policy must have delivery: pull."`
	Max   int           `default:"1" help:"Limit of timers, 1–1000 (${default})."`
	Wait  time.Duration `default:"0s" help:"How long to wait for one, up to 60s (${default})."`
	Lease string        `placeholder:"30s" help:"Length of the leases; else the topic's."`
}

func (p *pullCmd) Run(ctl *Command, term *terminal.Terminal) error {
	if p.Max < 1 || p.Max > 1000 {
		return terminal.Usagef("--max: must be 1–1000")
	}
	if p.Wait < 0 || p.Wait > time.Minute {
		return terminal.Usagef("--wait: must be 0s–60s")
	}
	o := &object{}
	o.set("max", p.Max)
	o.text("wait", p.Wait.String())
	o.text("lease", p.Lease)
	patient := *ctl
	patient.Timeout += p.Wait
	pull := client.Request{Method: http.MethodPost, Path: client.Path("topics", p.Topic, "pull"), Body: o.bytes()}
	return patient.show(term, pull, func(body []byte) error { return printPulled(term, body) })
}

// printPulled prints a table of the leased timers, and each receipt in full: ack and nack take it.
func printPulled(term *terminal.Terminal, body []byte) error {
	var answer struct {
		Timers []client.Lease `json:"timers"`
	}
	if err := readAnswer(body, &answer); err != nil {
		return err
	}
	if len(answer.Timers) == 0 {
		_, err := fmt.Fprintln(term.Err, "nothing is ready")
		return err
	}
	t := newTable(term.Out, "ID", "DUE", "ATTEMPT", "LEASE UNTIL", "RECEIPT", "PAYLOAD")
	for _, v := range answer.Timers {
		t.row(v.ID, instant(v.Due), fmt.Sprint(v.Attempt), instant(v.LeaseUntil), v.Receipt, string(v.Payload))
	}
	return t.w.Flush()
}

type ackCmd struct {
	Receipts []string `arg:"" name:"receipt" help:"Receipts of the leases whose work is done."`
}

func (a *ackCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.claim(term, "ack", a.Receipts, &object{})
}

type nackCmd struct {
	Receipts []string `arg:"" name:"receipt" help:"Receipts of the leases whose work failed."`
	Delay    string   `placeholder:"5s" help:"Until the next attempt; else the backoff."`
	Reason   string   `placeholder:"TEXT" help:"Why; it shows as the timer's last error."`
}

func (n *nackCmd) Run(ctl *Command, term *terminal.Terminal) error {
	o := &object{}
	o.text("delay", n.Delay)
	o.text("reason", n.Reason)
	return ctl.claim(term, "nack", n.Receipts, o)
}

type extendCmd struct {
	Receipts []string `arg:"" name:"receipt" help:"Receipts of the leases to hold longer."`
	Lease    string   `placeholder:"30s" help:"Length of the leases from now; else the topic's."`
}

func (e *extendCmd) Run(ctl *Command, term *terminal.Terminal) error {
	o := &object{}
	o.text("lease", e.Lease)
	return ctl.claim(term, "extend", e.Receipts, o)
}

// claim changes leases. It fails when one of them is over, and names it.
func (c *Command) claim(term *terminal.Terminal, verb string, receipts []string, o *object) error {
	o.set("receipts", receipts)
	body, err := c.do(client.Request{Method: http.MethodPost, Path: client.Path(verb), Body: o.bytes()})
	if err != nil {
		return err
	}
	var answer struct {
		Results []client.ReceiptResult `json:"results"`
	}
	if err := readAnswer(body, &answer); err != nil {
		return err
	}
	if c.JSON {
		if err := printJSON(term.Out, body); err != nil {
			return err
		}
	}
	var over []string
	for _, r := range answer.Results {
		if r.Err() != nil {
			over = append(over, r.Receipt)
		}
	}
	if len(over) > 0 {
		return fmt.Errorf("%d of %d leases are over: %s; what ran out, or was ended before, may be with another consumer",
			len(over), len(answer.Results), strings.Join(over, " "))
	}
	if c.JSON {
		return nil
	}
	_, err = fmt.Fprintf(term.Out, "%s: %d\n", verb, len(answer.Results))
	return err
}
