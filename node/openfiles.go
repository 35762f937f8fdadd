package node

import "fmt"

// Of the files that a process may open a node needs so many, but no more than half, for its log,
// snapshots, history and peers. Of the rest clients may have half; calls to receivers, and
// connections to receivers that wait for the next call, a quarter each.
const reservedFiles = 256

// minFiles is the least with which a node does its work.
const minFiles = 64

// minConnections is how many connections the API always has: with fewer it could not be used.
const minConnections = 16

// mostIdle is how many connections to receivers wait for the next call, where files are no matter.
const mostIdle = 4096

// fileShares are the connections that a node may have at once.
type fileShares struct {
	clients int
	calls   int // to receivers
	idle    int // to receivers, between calls
}

// within is how many of the wanted connections fit a limit of open files; 0 is no limit.
func (w fileShares) within(files uint64) fileShares {
	if files == 0 {
		return w
	}
	room := int(min(files, 1<<30))
	room -= min(reservedFiles, room/2)
	return fileShares{
		clients: min(w.clients, max(minConnections, room/2)),
		calls:   min(w.calls, max(minConnections, room/4)),
		idle:    min(w.idle, max(1, room/4)),
	}
}

// checkFiles refuses a limit with which the node would fail at its work.
func checkFiles(files uint64) error {
	if files != 0 && files < minFiles {
		return fmt.Errorf("this process may open %d files, and a node needs %d at least; raise the limit (LimitNOFILE=, ulimit -n)", files, minFiles)
	}
	return nil
}

// allowedFiles is what the configuration wants, or what fits the limit of open files, which is
// logged. Go has raised the soft limit to the hard one.
func allowedFiles(cfg *Config) fileShares {
	files := openFileLimit()
	wanted := fileShares{clients: cfg.MaxConnections, calls: cfg.MaxCalls, idle: mostIdle}
	allowed := wanted.within(files)
	if allowed.clients < wanted.clients || allowed.calls < wanted.calls {
		cfg.Logger.Warn("the limit of open files allows fewer connections of clients than --max-connections, or fewer calls than --max-calls; raise it (LimitNOFILE=, ulimit -n)",
			"open_files", files, "connections", allowed.clients, "calls", allowed.calls)
	}
	return allowed
}
