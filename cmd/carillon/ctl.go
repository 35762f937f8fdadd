package main

import (
	"net/http"
	"time"

	"carillon/client"
)

// ctlCmd talks to a cluster through package client; any HTTP client can do the same.
type ctlCmd struct {
	URL     []string      `default:"http://127.0.0.1:7700" env:"CARILLON_URL" placeholder:"URL" help:"Nodes: the first that is up is asked; also CARILLON_URL (${default})."`
	Token   string        `env:"CARILLON_TOKEN" placeholder:"TOKEN" help:"Token, where the node asks for one; better in CARILLON_TOKEN, which other processes cannot see."`
	CA      string        `name:"ca" env:"CARILLON_CA" placeholder:"FILE" help:"Authorities to trust for https (PEM)."`
	Cert    string        `name:"client-cert" env:"CARILLON_CLIENT_CERT" placeholder:"FILE" help:"Certificate with its key to show (PEM)."`
	JSON    bool          `name:"json" help:"Print the node's answer as it came."`
	Timeout time.Duration `default:"30s" help:"How long to wait for an answer (${default})."`

	client  *client.Client // made by Validate
	options client.Options // of it

	Add    ctlAddCmd    `cmd:"" help:"Add a timer."`
	Get    ctlGetCmd    `cmd:"" help:"Show a timer."`
	Patch  ctlPatchCmd  `cmd:"" help:"Change a timer: any of its parts, all at once."`
	Cancel ctlCancelCmd `cmd:"" help:"Cancel a timer, and say whether that came in time; or all that a filter selects."`

	Reschedule ctlRescheduleCmd `cmd:"" help:"Move all timers that a filter selects."`

	Fire   ctlFireCmd   `cmd:"" help:"Make a timer due now."`
	List   ctlListCmd   `cmd:"" help:"List a topic's timers by due time."`
	Topics ctlTopicsCmd `cmd:"" help:"Topics: list, get, put, delete, pause, resume."`
	Dead   ctlDeadCmd   `cmd:"" help:"Dead letters: list, redrive, purge."`

	Pull   ctlPullCmd   `cmd:"" help:"Fetch timers that are ready, from a pull topic."`
	Ack    ctlAckCmd    `cmd:"" help:"Say that pulled timers are done."`
	Nack   ctlNackCmd   `cmd:"" help:"Say that pulled timers failed."`
	Extend ctlExtendCmd `cmd:"" help:"Hold pulled timers longer."`

	History ctlHistoryCmd `cmd:"" help:"List a topic's timers that have ended, by when they did."`

	Export ctlExportCmd `cmd:"" help:"Write a topic's pending timers as adds."`
	Import ctlImportCmd `cmd:"" help:"Add the timers that an export wrote."`

	Tail         ctlTailCmd         `cmd:"" help:"Show what happens to timers, as it happens."`
	Backup       ctlBackupCmd       `cmd:"" help:"Back the whole cluster up, while it runs."`
	Destinations ctlDestinationsCmd `cmd:"" help:"Receivers that the nodes call, and their breakers."`

	Cluster ctlClusterCmd `cmd:"" help:"Nodes and shards, as the node sees them."`
	Shard   ctlShardCmd   `cmd:"" help:"Show a shard."`
	Drain   ctlDrainCmd   `cmd:"" help:"Have everything moved off a node."`
	Resume  ctlResumeCmd  `cmd:"" help:"Take a node's drain back."`
	Doctor  ctlDoctorCmd  `cmd:"" help:"Look for what is wrong, and for what would break if a node went now."`

	RollingRestart ctlRollingRestartCmd `cmd:"" help:"Restart the nodes one after the other, the next when all is well."`

	Upgrade ctlUpgradeCmd `cmd:"" help:"How far an upgrade is, and its end."`

	Remove ctlRemoveCmd `cmd:"" help:"Take a node out of the cluster for good, once it is drained or down."`

	Replicas ctlReplicasCmd `cmd:"" help:"Change how many copies of each timer the cluster keeps."`
}

func (*ctlCmd) Examples() string {
	return `carillon ctl add orders --id order-77 --delay 30m --payload '{"order":77}' --callback https://shop.example/hooks/close
carillon ctl patch orders order-77 --delay 1h
carillon ctl cancel orders order-77
carillon ctl list orders --label vip --limit 20
carillon ctl reschedule orders --label vip --shift +1h
carillon ctl topics put orders --policy '{"history":"24h"}'
carillon ctl cluster`
}

// Validate is called by the parser.
func (c *ctlCmd) Validate() error {
	if c.Timeout <= 0 {
		return usagef("--timeout: must be more than 0")
	}
	config, err := client.LoadTLS(c.CA, c.Cert)
	if err != nil {
		return usagef("--%v", err)
	}
	c.options = client.Options{
		Token: c.Token, UserAgent: "carillon-ctl/" + version(), Retries: -1, // a person decides
		HTTP: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config}},
	}
	c.client, err = client.New(c.URL, c.options)
	if err != nil {
		return usagef("--url: %v", err)
	}
	return nil
}
