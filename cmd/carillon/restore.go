package main

import (
	"fmt"
	"strings"
	"time"

	"carillon/cmd/carillon/terminal"
	"carillon/node"
)

// restoreCmd makes a data directory of a backup.
type restoreCmd struct {
	From       string `required:"" placeholder:"FILE" help:"The backup: a file, or s3://bucket/key."`
	Data       string `required:"" type:"path" placeholder:"DIR" help:"Data directory to make: a new one, or an empty one."`
	Fired      string `default:"hold" enum:"hold,fire,drop" placeholder:"hold|fire|drop" help:"Timers that were due before now, which the lost cluster may have fired: hold them, by pausing their topics; fire them; or drop them (${default})."`
	SecretsKey string `placeholder:"FILE" type:"path" help:"The cluster's --secrets-key file, for a backup that is encrypted."`
	AllowPlain bool   `help:"Take a backup that is not encrypted, although --secrets-key is given."`
	Shards     int    `placeholder:"N" help:"Refuse a backup with another number of shards."`
	Cluster    string `placeholder:"ID" help:"Id of the new cluster; else one is made."`
	Name       string `placeholder:"NAME" help:"Name of its first node, as serve will have it; else the host's."`
	Zone       string `placeholder:"ZONE" help:"Zone of its first node."`
}

func (r *restoreCmd) Run(term *terminal.Terminal) error {
	overdue := map[string]node.Overdue{"hold": node.HoldOverdue, "fire": node.FireOverdue, "drop": node.DropOverdue}[r.Fired]
	out, err := node.Restore(node.RestoreConfig{
		From: r.From, DataDir: r.Data, Overdue: overdue, Shards: r.Shards, ClusterID: r.Cluster, Name: r.Name, Zone: r.Zone,
		SecretsKeyFile: r.SecretsKey, AllowPlain: r.AllowPlain, Version: version(),
	})
	if err != nil {
		return fmt.Errorf("%w; nothing was restored", err)
	}
	fmt.Fprintf(term.Out, "restored the backup of cluster %s as of %s into %s, as cluster %s\n", out.Backup.ClusterID,
		time.UnixMilli(out.Backup.TimeMs).Format(time.RFC3339), r.Data, out.ClusterID)
	fmt.Fprintf(term.Out, "topics %d, timers scheduled %d, in flight %d, dead %d, finished %d\n", out.Topics, out.Scheduled, out.Leased, out.Dead, out.Finished)
	if out.Late > 0 {
		fmt.Fprintf(term.Out, "overdue %d: %s\n", out.Late, r.overdueText(out))
	}
	start := "carillon serve --data " + r.Data
	if r.SecretsKey != "" {
		start += " --secrets-key " + r.SecretsKey
	}
	fmt.Fprintf(term.Out, "start it: %s\n", start)
	return nil
}

// overdueText describes how overdue timers were treated.
func (r *restoreCmd) overdueText(out *node.Restored) string {
	switch r.Fired {
	case "fire":
		return "they fire when the node starts; those that the lost cluster has fired are fired again"
	case "drop":
		return fmt.Sprintf("%d were cancelled; %d, of which an attempt was made, are dead letters", out.Cancelled, out.GivenUp)
	}
	const most = 20
	names, more := out.Paused, ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(out.Paused)-most)
	}
	return fmt.Sprintf("they are held, and these topics are paused until carillon ctl topics resume TOPIC: %s%s", strings.Join(names, " "), more)
}
