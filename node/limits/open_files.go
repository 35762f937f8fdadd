package limits

import (
	"fmt"
	"log/slog"
)

// Of the files that a process may open a node needs so many, but no more than half, for its log,
// snapshots, history and peers. Of the rest clients may have half; calls to receivers, and
// connections to receivers that wait for the next call, a quarter each.
const reservedFiles = 256

// minFiles is the least with which a node does its work.
const minFiles = 64

// MinConnections is how many connections the API always has: with fewer it could not be used.
const MinConnections = 16

// mostIdle is how many connections to receivers wait for the next call, where files are no matter.
const mostIdle = 4096

// Connections are the connections that a node may have at once.
type Connections struct {
	Clients int
	Calls   int // to receivers
	Idle    int // to receivers, between calls
}

// within is how many of the wanted connections fit a limit of open files; 0 is no limit.
func (c Connections) within(files uint64) Connections {
	if files == 0 {
		return c
	}
	room := int(min(files, 1<<30))
	room -= min(reservedFiles, room/2)
	return Connections{
		Clients: min(c.Clients, max(MinConnections, room/2)),
		Calls:   min(c.Calls, max(MinConnections, room/4)),
		Idle:    min(c.Idle, max(1, room/4)),
	}
}

// CheckFiles refuses a limit of open files with which the node would fail at its work.
func CheckFiles() error { return checkFiles(openFileLimit()) }

func checkFiles(files uint64) error {
	if files != 0 && files < minFiles {
		return fmt.Errorf("this process may open %d files, and a node needs %d at least; raise the limit (LimitNOFILE=, ulimit -n)", files, minFiles)
	}
	return nil
}

// AllowedConnections are the wanted ones, or as many as fit the limit of open files, which is
// logged. Go has raised the soft limit to the hard one.
func AllowedConnections(clients, calls int, log *slog.Logger) Connections {
	files := openFileLimit()
	wanted := Connections{Clients: clients, Calls: calls, Idle: mostIdle}
	allowed := wanted.within(files)
	if allowed.Clients < wanted.Clients || allowed.Calls < wanted.Calls {
		log.Warn("the limit of open files allows fewer connections of clients than --max-connections, or fewer calls than --max-calls; raise it (LimitNOFILE=, ulimit -n)",
			"open_files", files, "connections", allowed.Clients, "calls", allowed.Calls)
	}
	return allowed
}
