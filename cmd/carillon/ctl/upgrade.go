package ctl

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

type upgradeCmd struct {
	Status   upgradeStatusCmd   `cmd:"" default:"1" help:"Show each node's release, and whether an upgrade waits to be finalized."`
	Finalize upgradeFinalizeCmd `cmd:"" help:"End an upgrade: use the new release's features from now on. The release before cannot be started any more."`
}

type upgradeStatusCmd struct{}

func (*upgradeStatusCmd) Run(ctl *Command, term *terminal.Terminal) error {
	return ctl.show(term, readCluster, reading(func(answer *client.Cluster) error {
		if answer.FeatureLevel == 0 {
			return errors.New("the cluster is not founded yet")
		}
		fmt.Fprintf(term.Out, "%s\n\n", levelLine(answer))
		t := newTable(term.Out, "NODE", "STATE", "VERSION", "FEATURE LEVEL")
		for i := range answer.Nodes {
			n := &answer.Nodes[i]
			t.row(n.Name, string(n.State), n.Version, strconv.Itoa(n.FeatureLevel))
		}
		return t.w.Flush()
	}))
}

type upgradeFinalizeCmd struct{}

func (*upgradeFinalizeCmd) Run(ctl *Command, term *terminal.Terminal) error {
	finalize := client.Request{Method: http.MethodPost, Path: client.Path("cluster", "finalize")}
	return ctl.show(term, finalize, reading(func(answer *struct {
		FeatureLevel int `json:"feature_level"`
	}) error {
		_, err := fmt.Fprintf(term.Out, "feature level %d\n", answer.FeatureLevel)
		return err
	}))
}

// levelLine shows the feature level that the cluster uses and the progress of an upgrade.
func levelLine(a *client.Cluster) string {
	line := fmt.Sprintf("feature level %d", a.FeatureLevel)
	switch u := a.Upgrade; {
	case u == nil:
		return line
	case len(u.Lacking) > 0:
		return fmt.Sprintf("%s; %d when these run the newer release, too, and the upgrade is finalized: %s", line, u.FeatureLevel, printable(strings.Join(u.Lacking, ", ")))
	default:
		return fmt.Sprintf("%s; the upgrade to %d waits to be finalized: carillon ctl upgrade finalize", line, u.FeatureLevel)
	}
}
