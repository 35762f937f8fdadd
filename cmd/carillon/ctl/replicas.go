package ctl

import (
	"fmt"
	"net/http"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

type replicasCmd struct {
	Number int           `arg:"" type:"count" help:"Copies of each timer, 1–7, on at most as many nodes as there are."`
	Wait   time.Duration `placeholder:"10m" help:"Wait at most this long until all shards have them; exit 1 if it takes longer."`
}

func (r *replicasCmd) Run(ctl *Command, term *terminal.Terminal) error {
	body, err := ctl.do(client.Request{Method: http.MethodPut, Path: client.Path("cluster", "replicas"), Body: fmt.Appendf(nil, `{"replicas":%d}`, r.Number)})
	if err != nil {
		return err
	}
	if r.Wait > 0 {
		if err := r.await(ctl); err != nil {
			return err
		}
	}
	if ctl.JSON {
		return printJSON(term.Out, body)
	}
	_, err = fmt.Fprintf(term.Out, "replicas: %d\n", r.Number)
	return err
}

func (r *replicasCmd) await(ctl *Command) error {
	return ctl.await(r.Wait, func(a *client.Cluster) (string, error) {
		left := r.left(a)
		if left == 0 {
			return "", nil
		}
		return fmt.Sprintf("%d of %d shards do not have their replicas yet after %s; the change continues%s", left, len(a.Shards), r.Wait, moving(a)), nil
	})
}

// left counts the shards that have not as many replicas as there should be, and nodes to hold them,
// or are on the way there. The node that is asked may not have heard of the new number yet.
func (r *replicasCmd) left(a *client.Cluster) (n int) {
	each := min(r.Number, holders(a))
	for _, s := range a.Shards {
		if a.Replicas != r.Number || len(s.Replicas) != each || s.State == client.ShardMoving {
			n++
		}
	}
	return n
}

// holders is how many nodes are to hold replicas.
func holders(a *client.Cluster) (n int) {
	for i := range a.Nodes {
		if s := a.Nodes[i].State; s != client.NodeDraining && s != client.NodeDrained && s != client.NodeLeft {
			n++
		}
	}
	return n
}
