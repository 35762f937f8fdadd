package node

import (
	"context"
	"errors"
	"net"

	"carillon/node/member"
)

// A node that finds its data directory damaged at its start is replaced by one that begins empty in
// the same process: see package member. Until then it is seen, and asks; it votes, leads,
// acknowledges and calls nothing.

// errSetAside ends the run of a node whose directory was set aside.
var errSetAside = errors.New("node: the damaged data directory was set aside")

// replace sets the directory aside once the cluster has confirmed that it can do without it; the
// error is errSetAside then, and else the reason why this node must stay down.
func (p *process) replace(ctx context.Context, damage error) error {
	p.log.Error("the data directory is damaged; this node asks the cluster whether it can be replaced", "damage", damage)
	if err := p.self.AwaitReplacement(ctx, damage); err != nil {
		return stayDown(err)
	}
	folder, err := p.self.SetAside()
	if err != nil {
		return stayDown(errors.Join(damage, err))
	}
	p.log.Warn("the damaged data directory was set aside, and this node joins its cluster as a new one; delete the folder when it is no longer needed",
		"folder", folder, "damage", damage)
	return errSetAside
}

// warnOfAsides reminds the operator of folders that were set aside, and returns how many there are.
func (p *process) warnOfAsides() int {
	list, err := member.Asides(p.fsys, p.cfg.DataDir)
	if err == nil && len(list) > 0 {
		p.log.Warn("the data directory has folders that were set aside as damaged; delete them when they are no longer needed", "folders", list)
	}
	return len(list)
}

// keepPort is an address that asked for any port, with the one that was picked.
func keepPort(address string, ln net.Listener) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != "0" {
		return address
	}
	_, port, err = net.SplitHostPort(ln.Addr().String())
	if err != nil {
		return address
	}
	return net.JoinHostPort(host, port)
}
