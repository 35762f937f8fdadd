package node

import "time"

// saysStarted logs the node's description, once it has read its log.
func (n *Node) saysStarted(c *core) {
	s := c.host.Stats()
	n.cfg.Logger.Info("the node has started", "version", n.cfg.Version, "name", n.cfg.Name, "data", n.cfg.DataDir, "api", n.URL(),
		"shards", c.p.self.Identity().Shards, "timers_led", s.Scheduled+s.Leased, "api_tls", onOff(n.tls != nil), "tokens", onOff(n.auth != nil),
		"peers_proven", onOff(c.p.proven()), "callbacks_go_to", goesTo(c.pool.Policy()))
}

// saysStopped logs that the node stops and, when the function that it returns is called, how it
// ended. A node that has not read its log has nothing to say: the error of its start is the only
// line.
func (c *core) saysStopped() (ended func()) {
	select {
	case <-c.host.Started():
	default:
		return func() {}
	}
	begun := time.Now()
	c.p.log.Info("the node stops: it hands its shards over, and finishes the calls in flight")
	return func() { c.p.log.Info("the node has stopped", "took", time.Since(begun).Round(time.Millisecond)) }
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
