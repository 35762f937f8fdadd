package ctl

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"carillon/client"
	"carillon/cmd/carillon/terminal"
)

type shardsCmd struct {
	Number int  `arg:"" type:"count" help:"The new number: the present one times 2, 4, 8, …; at most 4096. There is no way back to fewer."`
	Wait   bool `help:"Wait until it is done, also while nodes start again; shows how far it is."`
	DryRun bool `help:"Change nothing; print the bytes, memory and moves that it needs, roughly, and what it would wait for."`
}

func (s *shardsCmd) Run(ctl *Command, term *terminal.Terminal) error {
	r := client.Request{Method: http.MethodPost, Path: client.Path("cluster", "shards"), Body: fmt.Appendf(nil, `{"shards":%d}`, s.Number)}
	if s.DryRun {
		r.Query = url.Values{"dry_run": {"true"}}
		return ctl.show(term, r, reading(func(need *client.ShardsNeed) error {
			_, err := fmt.Fprintf(term.Out, "bytes written and sent, by all nodes: %d\nmemory of a node while it divides a shard: %d\nmemory of each node from then on, for the new shards themselves: %d\nreplicas that move afterwards: %d\n",
				need.Bytes, need.MemoryBytes, need.LastingBytes, need.Moves)
			if err == nil && need.WaitsFor != "" {
				_, err = fmt.Fprintf(term.Out, "it would wait: %s\n", growthWait(need.WaitsFor, need.Shard))
			}
			return err
		}))
	}
	body, err := ctl.do(r)
	if err != nil && !s.mayBeUnderWay(err) {
		return err
	}
	if s.Wait {
		if err := s.await(ctl, term, err); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if ctl.JSON {
		if body == nil { // it was under way: the answer is the same
			body = fmt.Appendf(nil, `{"shards":%d}`, s.Number)
		}
		return printJSON(term.Out, body)
	}
	_, err = fmt.Fprintf(term.Out, "shards: %d\n", s.Number)
	return err
}

// mayBeUnderWay reports whether a refusal may be that of a growth to this very number, so that
// there is something to wait for.
func (s *shardsCmd) mayBeUnderWay(err error) bool {
	return s.Wait && (errors.Is(err, client.ErrBusy) || errors.Is(err, client.ErrBadShards))
}

const (
	noAnswerLimit = time.Minute     // how long no node may answer while the command waits
	noGrowthLimit = 3 * time.Second // how long a node may not have heard of a growth that began before
)

// await waits for the end of the growth. refused is why the request was refused; nil: it was not. A
// refused one is awaited only if a growth to that number is under way.
func (s *shardsCmd) await(ctl *Command, term *terminal.Terminal, refused error) error {
	tick := time.NewTicker(clusterPoll)
	defer tick.Stop()
	progress, heard, began := term.Progress(), time.Now(), time.Now()
	defer progress.End()
	for ; ; <-tick.C {
		a, err := within(ctl, false, ctl.client.Cluster)
		if err == nil && a.ID == "" {
			err = errors.New("the node has no cluster yet")
		}
		if err != nil {
			if p, answered := errors.AsType[*client.Problem](err); answered && p.Status < http.StatusInternalServerError && !p.Retryable {
				return cmp.Or(refused, err)
			}
			if time.Since(heard) > noAnswerLimit {
				return fmt.Errorf("%w; the growth continues by itself once the nodes are back", err)
			}
			continue
		}
		heard = time.Now()
		left, err := s.progress(a)
		if err != nil || left == "" {
			return err
		}
		if refused != nil && a.Resharding == nil && time.Since(began) > noGrowthLimit {
			return refused
		}
		if !ctl.JSON {
			progress.Show(printable(left))
		}
	}
}

// progress returns how far it is; "": it is done.
func (s *shardsCmd) progress(a *client.Cluster) (string, error) {
	r := a.Resharding
	switch {
	case r == nil && a.ShardsTotal == s.Number:
		return "", nil
	case r == nil && a.ShardsTotal > s.Number:
		return "", fmt.Errorf("there are %d shards", a.ShardsTotal)
	case r == nil: // the node has not heard of it yet
		return fmt.Sprintf("%d shards", a.ShardsTotal), nil
	case r.To != s.Number:
		return "", fmt.Errorf("the number of shards grows to %d, not to %d", r.To, s.Number)
	}
	return growth(r), nil
}

// growth is how far the number of shards has grown, and what that waits for.
func growth(r *client.Resharding) string {
	text := fmt.Sprintf("%d of %d new shards", r.Done, r.To-r.From)
	if r.WaitsFor != "" {
		text += "; " + growthWait(r.WaitsFor, r.Shard)
	}
	return text
}

// growthWait is why a growth does not go on at a shard.
func growthWait(why string, shard int) string {
	switch why {
	case "majority":
		return fmt.Sprintf("shard %d has lost most of its replicas", shard)
	case "move":
		return fmt.Sprintf("the replicas of shard %d are being changed", shard)
	case "disk":
		return fmt.Sprintf("the disk of a node with a replica of shard %d is almost full", shard)
	case "memory":
		return fmt.Sprintf("a node with a replica of shard %d has almost used its memory: raise its --memory-limit", shard)
	default:
		return "it waits for " + why
	}
}
