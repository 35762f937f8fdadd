// Package ctl is the command that talks to a cluster: each subcommand is one struct in a file of
// its own, over package client. Policies in a file are checked by the reader that a node has. What
// help shows of a command besides its line and its flags is in help.txt, in the folder above.
package ctl

import (
	"errors"
	"net/http"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

// Command talks to a cluster through package client; any HTTP client can do the same.
type Command struct {
	URL     []string      `default:"http://127.0.0.1:7700" env:"CARILLON_URL" placeholder:"URL" help:"Nodes: the first that is up is asked; also CARILLON_URL (${default})."`
	Token   string        `env:"CARILLON_TOKEN" placeholder:"TOKEN" help:"Token, where the node asks for one; better in CARILLON_TOKEN, which other processes cannot see."`
	CA      string        `name:"ca" env:"CARILLON_CA" placeholder:"FILE" help:"Authorities to trust for https (PEM)."`
	Cert    string        `name:"client-cert" env:"CARILLON_CLIENT_CERT" placeholder:"FILE" help:"Certificate with its key to show (PEM)."`
	JSON    bool          `name:"json" help:"Print the node's answer as it came."`
	Timeout time.Duration `default:"30s" help:"How long to wait for an answer (${default})."`

	Version string         `kong:"-"` // of this program, as it names itself to a node
	client  *client.Client // made by Validate
	options client.Options // of it

	Add    addCmd    `cmd:"" help:"Add a timer."`
	Get    getCmd    `cmd:"" help:"Show a timer."`
	Patch  patchCmd  `cmd:"" help:"Change a timer: any of its parts, all at once."`
	Next   nextCmd   `cmd:"" help:"Show when a series is due next."`
	Cancel cancelCmd `cmd:"" help:"Cancel a timer, or all that a filter selects."`

	Reschedule rescheduleCmd `cmd:"" help:"Move all timers that a filter selects."`

	Now timerCommands `embed:""`

	List   listCmd   `cmd:"" help:"List the timers of a topic, or of all topics."`
	Topics topicsCmd `cmd:"" help:"Topics: list, get, set, put, delete, pause, resume."`
	Apply  applyCmd  `cmd:"" help:"Make the topics of a file, after a plan."`

	Letters deadLetterCommands `embed:""`

	Worker workerCommands `embed:""`

	History historyCmd `cmd:"" help:"List a topic's ended timers, by when they ended."`

	Export exportCmd `cmd:"" help:"Write a topic's pending timers as adds."`
	Import importCmd `cmd:"" help:"Add the timers that an export wrote."`

	Tail         tailCmd         `cmd:"" help:"Show what happens to timers, as it happens."`
	Backup       backupCmd       `cmd:"" help:"Back the whole cluster up, while it runs."`
	Destinations destinationsCmd `cmd:"" help:"Receivers that the nodes call, and their breakers."`

	Nodes nodeCommands `embed:""`

	Settings settingCommands `embed:""`
}

// nodeCommands show the nodes and shards of a cluster, and act on its nodes.
type nodeCommands struct {
	Cluster clusterCmd `cmd:"" help:"Nodes and shards, as the node sees them."`
	Shard   shardCmd   `cmd:"" help:"Show a shard."`
	Drain   drainCmd   `cmd:"" help:"Move all shards off a node."`
	Resume  resumeCmd  `cmd:"" help:"End a node's drain: it takes shards again."`
	Doctor  doctorCmd  `cmd:"" help:"Find what is wrong, or would be without a node."`

	RollingRestart rollingRestartCmd `cmd:"" help:"Restart the nodes one by one, each when all is well."`

	Upgrade upgradeCmd `cmd:"" help:"Show how far an upgrade is, or end it."`

	Remove removeCmd `cmd:"" help:"Take a node out for good, once it is drained or down."`
}

// settingCommands change what holds for a whole cluster.
type settingCommands struct {
	Replicas replicasCmd `cmd:"" help:"Change how many copies of each timer the cluster keeps."`
	Shards   shardsCmd   `cmd:"" help:"Increase the number of shards while they serve."`
	Clock    clockCmd    `cmd:"" help:"Show or move the clock of a node for tests."`
}

// Validate is called by the parser.
func (c *Command) Validate() error {
	if c.Timeout <= 0 {
		return terminal.Usagef("--timeout: must be more than 0")
	}
	config, err := client.LoadTLS(c.CA, c.Cert)
	if err != nil {
		return terminal.Usagef("--%v", err)
	}
	c.options = client.Options{
		Token: c.Token, UserAgent: "carillon-ctl/" + c.Version, Retries: -1, // a person decides
		HTTP: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config}},
	}
	return c.connect()
}

// AfterApply is called by the parser when a command is about to run.
func (c *Command) AfterApply() error {
	if len(c.URL) == 1 {
		return nil
	}
	c.URL = c.firstUp()
	return c.connect()
}

func (c *Command) connect() (err error) {
	c.client, err = client.New(c.URL, c.options)
	switch {
	case errors.Is(err, client.ErrBadToken):
		return terminal.Usagef("--token: %v", err)
	case err != nil:
		return terminal.Usagef("--url: %v", err)
	}
	return nil
}
