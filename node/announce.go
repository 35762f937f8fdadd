package node

import "time"

// logStarted logs the node's description, once it has read its log.
func (n *Node) logStarted(c *core) {
	s := c.host.Stats()
	n.cfg.Logger.Info("the node has started", "version", n.cfg.Version, "name", n.cfg.Name, "data", n.cfg.DataDir, "api", n.URL(),
		"shards", c.p.self.Identity().Shards, "timers_led", s.Scheduled+s.Leased, "api_tls", onOff(n.tls != nil), "tokens", onOff(n.auth != nil),
		"peers_proven", onOff(c.p.proven()), "callbacks_go_to", goesTo(c.pool.Policy()))
}

// logStopped logs that the node stops and, when the returned function is called, how it ended. A
// node that has not read its log logs nothing: the error of its start is the only line.
func (c *core) logStopped() (ended func()) {
	if !c.started() {
		return func() {}
	}
	begun := time.Now()
	c.p.log.Info("the node stops: it hands its shards over and finishes the calls in flight")
	return func() { c.p.log.Info("the node has stopped", "took", time.Since(begun).Round(time.Millisecond)) }
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
